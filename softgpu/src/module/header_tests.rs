use super::*;

#[test]
fn a_text_is_told_from_other_bytes_without_reading_on() {
    let begins = |text: &[u8]| {
        let mut at = 0;
        let found = is_ptx(|| {
            at += 1;
            text[at - 1]
        });
        (found, at)
    };
    assert!(begins(b"\n// a\n  .version 8.8\0").0);
    assert!(begins(b"/* a */ .version\0").0);
    assert_eq!(begins(b"\0"), (false, 1));
    assert_eq!(begins(b".veto"), (false, 4));
    assert_eq!(begins(b"// no end\0"), (false, 10));
    assert_eq!(begins(b"any image"), (false, 1));
}
