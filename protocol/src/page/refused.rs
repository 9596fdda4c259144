//! The largest allocation that a process was refused lately, in one word of its slot.

/// The largest allocation refused since the word was last read, on any device.
///
/// The lowest four bits are the device's index, the others the bytes that it would have been
/// charged, so that the larger word is the larger allocation. Zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedWord(u64);

impl RefusedWord {
    const DEVICE_BITS: u32 = super::MAX_DEVICES.trailing_zeros();
    const MOST: u64 = u64::MAX >> Self::DEVICE_BITS;

    /// The word for an allocation of `bytes` on the device of an index. More than 2^60 - 1 bytes
    /// count as that, none as 1, and an index of no device as its remainder.
    pub fn new(device_index: usize, bytes: u64) -> Self {
        let device = (device_index % super::MAX_DEVICES) as u64;
        Self(bytes.clamp(1, Self::MOST) << Self::DEVICE_BITS | device)
    }

    /// The word with these bits. Any bits are one.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The bytes that the largest would have been charged, if it was on the device of this index.
    pub fn on(self, device_index: usize) -> Option<u64> {
        let (bytes, device) = (
            self.0 >> Self::DEVICE_BITS,
            self.0 % super::MAX_DEVICES as u64,
        );
        (bytes > 0 && device == device_index as u64).then_some(bytes)
    }
}

#[cfg(not(loom))]
const _: () = assert!(super::MAX_DEVICES.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::RefusedWord;

    #[test]
    fn a_refused_word_says_size_and_device() {
        for device_index in [0, 1, 15] {
            let word = RefusedWord::new(device_index, 300 << 20);
            assert_eq!(word.on(device_index), Some(300 << 20));
            assert_eq!(word.on((device_index + 1) % 16), None);
            assert_eq!(RefusedWord::from_bits(word.bits()), word);
        }
        assert_eq!(RefusedWord::default().on(0), None);
    }

    #[test]
    fn the_larger_refused_word_is_the_larger_allocation() {
        let small = RefusedWord::new(15, 512);
        let large = RefusedWord::new(0, 513);
        assert!(large.bits() > small.bits());
        assert_eq!(RefusedWord::new(3, u64::MAX).on(3), Some((1 << 60) - 1));
    }
}
