//! A machine with one piece of memory, and single instructions on many operands.

use std::sync::Arc;

use softgpu_ptx::{Fault, Launch, Machine, Memory, Module, Progress, Run, Trap};

/// Where the memory begins.
pub(crate) const BASE: u64 = 0x1000;

/// Memory, and a clock that counts its readings.
pub(crate) struct Device {
    pub(crate) bytes: Vec<u8>,
    clock: u64,
}

impl Device {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            bytes: vec![0; bytes],
            clock: 0,
        }
    }

    pub(crate) fn put<const N: usize>(
        &mut self,
        at: u64,
        values: impl IntoIterator<Item = [u8; N]>,
    ) {
        for (index, value) in values.into_iter().enumerate() {
            let from = (at - BASE) as usize + N * index;
            self.bytes[from..from + N].copy_from_slice(&value);
        }
    }

    pub(crate) fn words(&self, at: u64, count: usize) -> Vec<u32> {
        let from = (at - BASE) as usize;
        let words = self.bytes[from..from + 4 * count].chunks(4);
        words
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect()
    }

    pub(crate) fn floats(&self, at: u64, count: usize) -> Vec<f32> {
        self.words(at, count)
            .into_iter()
            .map(f32::from_bits)
            .collect()
    }

    fn at(&mut self, address: u64, bytes: u32) -> Result<&mut [u8], Fault> {
        let from = address.checked_sub(BASE).ok_or(Fault::Illegal)? as usize;
        self.bytes
            .get_mut(from..from + bytes as usize)
            .ok_or(Fault::Illegal)
    }
}

impl Memory for Device {
    fn load(&mut self, address: u64, bytes: u32) -> Result<u64, Fault> {
        let slot = self.at(address, bytes)?;
        Ok(slot
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn store(&mut self, address: u64, bytes: u32, value: u64) -> Result<(), Fault> {
        let slot = self.at(address, bytes)?;
        slot.copy_from_slice(&value.to_le_bytes()[..bytes as usize]);
        Ok(())
    }

    fn update(
        &mut self,
        address: u64,
        bytes: u32,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        let old = self.load(address, bytes)?;
        self.store(address, bytes, change(old))?;
        Ok(old)
    }
}

impl Machine for Device {
    fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

/// The head of a module.
pub(crate) const HEAD: &str = ".version 8.5\n.target sm_90\n.address_size 64\n";

/// A launch with parameters of eight bytes each.
pub(crate) fn launch(
    module: &Arc<Module>,
    kernel: &str,
    grid: u32,
    block: u32,
    params: &[u64],
) -> Launch {
    Launch {
        module: Arc::clone(module),
        kernel: kernel.to_owned(),
        params: params
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        dynamic_shared: 0,
        addresses: Vec::new(),
        resident: 8,
        multiprocessors: 4,
        watchdog: 100_000_000,
    }
}

/// Parses a module without its head; it must be understood wholly.
pub(crate) fn module(body: &str) -> Arc<Module> {
    let module = Module::parse(&format!("{HEAD}{body}")).unwrap();
    for name in module.kernel_names() {
        assert_eq!(module.kernel(name).unwrap().unknown(), [], "{name}");
    }
    Arc::new(module)
}

/// Runs a launch to its end, a few instructions at a time; returns how many it ran.
pub(crate) fn run(launch: Launch, device: &mut Device) -> Result<u64, Trap> {
    let mut run = Run::new(launch).unwrap();
    while run.step(device, 1000)? == Progress::Running {}
    Ok(run.executed())
}

/// Numbers without a pattern.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Often a number at an edge.
    pub(crate) fn edgy(&mut self) -> u64 {
        const EDGES: [u64; 12] = [
            0,
            1,
            2,
            31,
            32,
            63,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            0x7fff_ffff_ffff_ffff,
            0x8000_0000_0000_0000,
            u64::MAX,
        ];
        match self.next() % 4 {
            0 => EDGES[(self.next() % 12) as usize],
            1 => self.next() % 100,
            _ => self.next(),
        }
    }
}

/// The results of one instruction, `text`, of registers `%a`, `%b`, `%c` (and predicate `%q`, which
/// is bit 0 of `%c`) into `%d`; the letters stand for types of registers.
pub(crate) fn results(text: &str, [a, b, c, d]: [&str; 4], operands: &[[u64; 3]]) -> Vec<u64> {
    let ld = |name, ty: &str, offset| match ty {
        "pred" => format!("ld.global.u32 %w, [%in+{offset}]; setp.ne.u32 {name}, %w, 0;\n"),
        ty => format!("ld.global.{ty} {name}, [%in+{offset}];\n"),
    };
    let st = match d {
        "pred" => "selp.u32 %w, 1, 0, %d; st.global.u32 [%out], %w;".to_owned(),
        ty => format!("st.global.{ty} [%out], %d;"),
    };
    let text = format!(
        ".visible .entry one(.param .u64 in, .param .u64 out) {{\n\
         .reg .{a} %a; .reg .{b} %b; .reg .{c} %c; .reg .{d} %d; .reg .pred %q; .reg .u32 %w; .reg .u64 %in, %out, %i;\n\
         ld.param.u64 %in, [in]; ld.param.u64 %out, [out];\n\
         mov.u32 %w, %ctaid.x; mad.wide.u32 %in, %w, 24, %in; mad.wide.u32 %out, %w, 8, %out;\n\
         {}{}{}ld.global.u32 %w, [%in+16]; and.b32 %w, %w, 1; setp.ne.u32 %q, %w, 0;\n{text}\n{st}\nret;\n}}\n",
        ld("%a", a, 0),
        ld("%b", b, 8),
        ld("%c", c, 16),
    );
    let count = operands.len();
    let mut device = Device::new(32 * count);
    device.put(
        BASE,
        operands.iter().flatten().map(|value| value.to_le_bytes()),
    );
    let out = BASE + 24 * count as u64;
    let module = module(&text);
    run(
        launch(&module, "one", count as u32, 1, &[BASE, out]),
        &mut device,
    )
    .unwrap();
    let found = device.words(out, 2 * count);
    found
        .chunks(2)
        .map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32)
        .collect()
}

/// Compares the instruction with `expected` on a thousand operands.
#[track_caller]
pub(crate) fn same(text: &str, types: [&str; 4], expected: impl Fn(u64, u64, u64) -> u64) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let operands: Vec<[u64; 3]> = (0..1000)
        .map(|_| [random.edgy(), random.edgy(), random.edgy()])
        .collect();
    same_on(text, types, &operands, expected);
}

/// As [`same`], on these operands.
#[track_caller]
pub(crate) fn same_on(
    text: &str,
    types: [&str; 4],
    operands: &[[u64; 3]],
    expected: impl Fn(u64, u64, u64) -> u64,
) {
    for (found, [a, b, c]) in results(text, types, operands).into_iter().zip(operands) {
        let wanted = expected(*a, *b, *c);
        assert_eq!(
            found, wanted,
            "{text} of {a:#x}, {b:#x}, {c:#x}: {found:#x}, not {wanted:#x}"
        );
    }
}
