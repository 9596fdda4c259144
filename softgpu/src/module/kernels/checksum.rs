//! `checksum(const uint8 *src, uint64 n, uint64 *out)`: FNV-1a with 64 bits.

use super::access::DeviceSlice;
use super::{Args, Builtin, Weight};
use crate::context::Context;
use crate::error::Result;
use crate::memory::managed::{Accessed, Manner};
use crate::va::Access;

/// Offset basis and prime of 64-bit FNV-1a (draft-eastlake-fnv).
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Hashes bytes.
pub(super) static CHECKSUM: Builtin = Builtin {
    name: "checksum",
    params: &[8, 8, 8],
    weight,
    run,
    accesses,
    spins: None,
};

fn weight(args: &Args<'_>) -> Weight {
    Weight::Bytes(args.number(1))
}

fn accesses(args: &Args<'_>) -> Vec<Accessed> {
    vec![
        (args.number(0), args.number(1), Manner::Read),
        (args.number(2), 8, Manner::Write),
    ]
}

fn run(args: &Args<'_>, context: &Context) -> Result {
    let src = DeviceSlice::<u8>::new(context, args.number(0), args.number(1), Access::Read)?;
    let out = DeviceSlice::<u64>::new(context, args.number(2), 1, Access::Write)?;
    out.set(0, fnv1a((0..src.len()).map(|at| src.get(at))));
    Ok(())
}

fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(BASIS, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_equals_the_published_test_values() {
        assert_eq!(super::fnv1a("".bytes()), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::fnv1a("a".bytes()), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(super::fnv1a("foobar".bytes()), 0x8594_4171_f739_67e8);
    }
}
