//! Properties of the simulated device: an H200's figures where programs read them. Both libraries
//! report the same values.

/// The name of every device. It shows that the device is simulated.
pub const NAME: &str = "softgpu H200";
/// Compute capability.
pub const CAPABILITY: (i32, i32) = (9, 0);
/// Multiprocessor clock in kHz.
pub const CLOCK_KHZ: u32 = 1_980_000;
/// Memory clock in kHz.
pub const MEMORY_CLOCK_KHZ: u32 = 3_201_000;
/// Width of the memory bus in bits.
pub const BUS_WIDTH: u32 = 6144;
/// The display driver version that goes with a CUDA version: the first release of its branch.
pub fn driver_release(cuda: u32) -> &'static str {
    match cuda {
        ..11010 => "450.36.06",
        11010..11020 => "455.23.05",
        11020..11030 => "460.27.03",
        11030..11040 => "465.19.01",
        11040..11050 => "470.42.01",
        11050..11060 => "495.29.05",
        11060..11070 => "510.39.01",
        11070..11080 => "515.43.04",
        11080..12000 => "520.61.05",
        12000..12010 => "525.60.13",
        12010..12020 => "530.30.02",
        12020..12030 => "535.54.03",
        12030..12040 => "545.23.06",
        12040..12050 => "550.54.14",
        12050..12060 => "555.42.02",
        12060..12070 => "560.28.03",
        12070..12080 => "565.57.01",
        12080..12090 => "570.86.10",
        12090..13000 => "575.51.03",
        13000..13010 => "580.65.06",
        13010..13020 => "590.44.01",
        _ => "615.36.00",
    }
}

/// Whether the entries of the newest lists of processes (`_v3`) have the memory that is protected,
/// and so 32 bytes. Those of 535.43 to 535.86 have; 535.98 lacks the functions, and later drivers
/// have them with entries of 24 bytes.
pub fn lists_protected(cuda: u32) -> bool {
    driver_release(cuda) == "535.54.03"
}

/// The PCI address of a device: domain, bus and device number (function 0).
pub fn pci(index: u32) -> (u32, u32, u32) {
    (0, 0x1b + 0x10 * (index % 8) + index / 8, 0)
}
