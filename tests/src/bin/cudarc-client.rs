//! A client written with cudarc: it reads its quota, reaches it, frees memory and continues. It
//! prints one JSON object on standard output.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the test reads its output")]

use cudarc::driver::{CudaContext, DriverError};

const CHUNK: usize = 64 << 20;

fn main() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let total = context.total_mem()?;
    let mut rounds = Vec::new();
    for _ in 0..2 {
        let mut held = Vec::new();
        let refused = loop {
            match stream.alloc_zeros::<u8>(CHUNK) {
                Ok(slice) => held.push(slice),
                Err(refused) => break refused,
            }
        };
        rounds.push(format!(
            "[{}, {:?}]",
            held.len(),
            format!("{:?}", refused.0)
        ));
        drop(held);
        stream.synchronize()?;
    }
    let copied = stream.clone_dtoh(&stream.clone_htod(&[1_u32, 2, 3])?)? == [1, 2, 3];
    println!(
        "{{\"total\": {total}, \"rounds\": [{}], \"copied\": {copied}}}",
        rounds.join(", ")
    );
    Ok(())
}
