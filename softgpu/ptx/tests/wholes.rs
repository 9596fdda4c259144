//! Whole numbers, bits, comparisons and moves, against Rust's own arithmetic.

use crate::common::{same, same_on};

const W: [&str; 4] = ["b32"; 4];
const D: [&str; 4] = ["b64"; 4];
const H: [&str; 4] = ["b16"; 4];

fn u(value: u64) -> u32 {
    value as u32
}

fn s(value: u64) -> i32 {
    value as i32
}

fn w(value: u32) -> u64 {
    u64::from(value)
}

#[test]
fn sums_and_products_wrap_at_their_width() {
    same("add.u32 %d, %a, %b;", W, |a, b, _| {
        w(u(a).wrapping_add(u(b)))
    });
    same("add.s64 %d, %a, %b;", D, |a, b, _| a.wrapping_add(b));
    same("sub.s16 %d, %a, %b;", H, |a, b, _| {
        a.wrapping_sub(b) & 0xffff
    });
    same("mul.lo.s32 %d, %a, %b;", W, |a, b, _| {
        w(u(a).wrapping_mul(u(b)))
    });
    same("mul.hi.s32 %d, %a, %b;", W, |a, b, _| {
        w(((i64::from(s(a)) * i64::from(s(b))) >> 32) as u32)
    });
    same("mul.hi.u32 %d, %a, %b;", W, |a, b, _| {
        (w(u(a)) * w(u(b))) >> 32
    });
    same("mul.hi.u64 %d, %a, %b;", D, |a, b, _| {
        ((u128::from(a) * u128::from(b)) >> 64) as u64
    });
    same("mul.hi.s64 %d, %a, %b;", D, |a, b, _| {
        ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64
    });
    same(
        "mul.wide.s32 %d, %a, %b;",
        ["b32", "b32", "b32", "b64"],
        |a, b, _| (i64::from(s(a)) * i64::from(s(b))) as u64,
    );
    same(
        "mul.wide.u16 %d, %a, %b;",
        ["b16", "b16", "b16", "b32"],
        |a, b, _| (a & 0xffff) * (b & 0xffff),
    );
    same("mad.lo.s32 %d, %a, %b, %c;", W, |a, b, c| {
        w(u(a).wrapping_mul(u(b)).wrapping_add(u(c)))
    });
    same(
        "mad.wide.u32 %d, %a, %b, %c;",
        ["b32", "b32", "b64", "b64"],
        |a, b, c| (w(u(a)) * w(u(b))).wrapping_add(c),
    );
    same("mad.hi.u32 %d, %a, %b, %c;", W, |a, b, c| {
        w((((w(u(a)) * w(u(b))) >> 32) as u32).wrapping_add(u(c)))
    });
    same("mul24.lo.u32 %d, %a, %b;", W, |a, b, _| {
        ((a & 0xff_ffff) * (b & 0xff_ffff)) & 0xffff_ffff
    });
    same("sad.s32 %d, %a, %b, %c;", W, |a, b, c| {
        w(s(a).abs_diff(s(b)).wrapping_add(u(c)))
    });
}

#[test]
fn saturating_sums_stop_at_the_ends_of_the_range() {
    same("add.sat.s32 %d, %a, %b;", W, |a, b, _| {
        w(s(a).saturating_add(s(b)) as u32)
    });
    same("sub.sat.s32 %d, %a, %b;", W, |a, b, _| {
        w(s(a).saturating_sub(s(b)) as u32)
    });
    same("mad.hi.sat.s32 %d, %a, %b, %c;", W, |a, b, c| {
        w((((i64::from(s(a)) * i64::from(s(b))) >> 32) as i32).saturating_add(s(c)) as u32)
    });
}

#[test]
fn quotients_have_the_signs_of_c_and_zero_divides_to_all_ones() {
    same("div.s32 %d, %a, %b;", W, |a, b, _| {
        if u(b) == 0 {
            0xffff_ffff
        } else {
            w(s(a).wrapping_div(s(b)) as u32)
        }
    });
    same("rem.s32 %d, %a, %b;", W, |a, b, _| {
        if u(b) == 0 {
            w(u(a))
        } else {
            w(s(a).wrapping_rem(s(b)) as u32)
        }
    });
    same("div.u64 %d, %a, %b;", D, |a, b, _| {
        a.checked_div(b).unwrap_or(u64::MAX)
    });
    same("rem.u64 %d, %a, %b;", D, |a, b, _| {
        a.checked_rem(b).unwrap_or(a)
    });
    same("div.s64 %d, %a, %b;", D, |a, b, _| {
        if b == 0 {
            u64::MAX
        } else {
            (a as i64).wrapping_div(b as i64) as u64
        }
    });
}

#[test]
fn carries_join_words_to_longer_numbers() {
    let sum = "{ .reg .b32 %l0, %h0, %l1, %h1, %x, %y; mov.b64 {%l0, %h0}, %a; mov.b64 {%l1, %h1}, %b; \
               OP.cc.u32 %x, %l0, %l1; OPc.u32 %y, %h0, %h1; mov.b64 %d, {%x, %y}; }";
    same(&sum.replace("OP", "add"), D, |a, b, _| a.wrapping_add(b));
    same(&sum.replace("OP", "sub"), D, |a, b, _| a.wrapping_sub(b));
    let product = "{ .reg .b32 %x, %y, %z; mov.b64 {%x, %y}, %c; mad.lo.cc.u32 %x, %a, %b, %x; \
                   madc.hi.u32 %y, %a, %b, %y; mov.b64 %d, {%x, %y}; }";
    same(product, ["b32", "b32", "b64", "b64"], |a, b, c| {
        (w(u(a)) * w(u(b))).wrapping_add(c)
    });
}

#[test]
fn shifts_beyond_the_width_leave_zero_or_the_sign() {
    same("shl.b32 %d, %a, %b;", W, |a, b, _| {
        w(u(a).checked_shl(u(b)).unwrap_or(0))
    });
    same("shr.u32 %d, %a, %b;", W, |a, b, _| {
        w(u(a).checked_shr(u(b)).unwrap_or(0))
    });
    same("shr.s32 %d, %a, %b;", W, |a, b, _| {
        w((s(a) >> u(b).min(31)) as u32)
    });
    same(
        "shr.s64 %d, %a, %b;",
        ["b64", "b32", "b32", "b64"],
        |a, b, _| ((a as i64) >> u(b).min(63)) as u64,
    );
    same("shf.l.wrap.b32 %d, %a, %b, %c;", W, |a, b, c| {
        w((((w(u(b)) << 32 | w(u(a))) << (c & 31)) >> 32) as u32)
    });
    same("shf.r.wrap.b32 %d, %a, %b, %c;", W, |a, b, c| {
        w(((w(u(b)) << 32 | w(u(a))) >> (c & 31)) as u32)
    });
    same("shf.l.clamp.b32 %d, %a, %b, %c;", W, |a, b, c| {
        w((((w(u(b)) << 32 | w(u(a))) << u(c).min(32)) >> 32) as u32)
    });
}

#[test]
fn bits_are_counted_turned_cut_and_placed() {
    same(
        "popc.b64 %d, %a;",
        ["b64", "b32", "b32", "b32"],
        |a, _, _| w(a.count_ones()),
    );
    same("clz.b32 %d, %a;", W, |a, _, _| w(u(a).leading_zeros()));
    same("brev.b32 %d, %a;", W, |a, _, _| w(u(a).reverse_bits()));
    same("bfind.u32 %d, %a;", W, |a, _, _| {
        w(u(a).checked_ilog2().unwrap_or(u32::MAX))
    });
    same("bfind.shiftamt.s32 %d, %a;", W, |a, _, _| {
        let value = if s(a) < 0 { !u(a) } else { u(a) };
        w(value.checked_ilog2().map_or(u32::MAX, |at| 31 - at))
    });
    let bfe = |a: i64, at: u64, length: u64| {
        let (at, length) = (at & 255, length & 255);
        if length == 0 {
            0
        } else {
            (a >> at.min(63)) << (64 - length.min(64)) >> (64 - length.min(64))
        }
    };
    same("bfe.s32 %d, %a, %b, %c;", W, |a, b, c| {
        w(bfe(i64::from(s(a)), b, c) as u32)
    });
    same("bfe.u32 %d, %a, %b, %c;", W, |a, b, c| {
        let (at, length) = (b & 255, c & 255);
        let field = if at > 31 { 0 } else { w(u(a)) >> at };
        if length > 31 {
            field
        } else {
            field & ((1 << length) - 1)
        }
    });
    same(
        "{ .reg .b32 %e; mov.u32 %e, 9; bfi.b32 %d, %a, %b, %c, %e; }",
        W,
        |a, b, c| {
            let at = c & 255;
            let mask = if at > 31 { 0 } else { 0x1ff_u64 << at };
            let value = if at > 31 { 0 } else { w(u(a)) << at };
            w(u(b & !mask | value & mask))
        },
    );
    same("lop3.b32 %d, %a, %b, %c, 0xe8;", W, |a, b, c| {
        w(u(a & b | a & c | b & c))
    });
    same("lop3.b32 %d, %a, %b, %c, 0x96;", W, |a, b, c| {
        w(u(a ^ b ^ c))
    });
    same("prmt.b32 %d, %a, %b, 0x0123;", W, |a, _, _| {
        w(u(a).swap_bytes())
    });
    same("prmt.b32 %d, %a, %b, 0x7654;", W, |_, b, _| w(u(b)));
    same("not.b16 %d, %a;", H, |a, _, _| !a & 0xffff);
    same("cnot.b32 %d, %a;", W, |a, _, _| u64::from(u(a) == 0));
    same(
        "abs.s32 %d, %a;",
        W,
        |a, _, _| w(s(a).wrapping_abs() as u32),
    );
    same("neg.s64 %d, %a;", D, |a, _, _| a.wrapping_neg());
    same("dp4a.s32.s32 %d, %a, %b, %c;", W, |a, b, c| {
        let bytes = |value: u64| u(value).to_le_bytes().map(|byte| i32::from(byte as i8));
        let products = bytes(a).into_iter().zip(bytes(b)).map(|(x, y)| x * y);
        w(products.fold(s(c), i32::wrapping_add) as u32)
    });
}

#[test]
fn comparisons_follow_the_type_and_join_predicates() {
    let p = ["b32", "b32", "b32", "pred"];
    same("setp.lt.s32 %d, %a, %b;", p, |a, b, _| {
        u64::from(s(a) < s(b))
    });
    same("setp.lt.u32 %d, %a, %b;", p, |a, b, _| {
        u64::from(u(a) < u(b))
    });
    same("setp.hi.u32 %d, %a, %b;", p, |a, b, _| {
        u64::from(u(a) > u(b))
    });
    same("setp.ge.and.s32 %d, %a, %b, %q;", p, |a, b, c| {
        u64::from(s(a) >= s(b) && c & 1 == 1)
    });
    same("setp.eq.or.s32 %d, %a, %b, !%q;", p, |a, b, c| {
        u64::from(s(a) == s(b) || c & 1 == 0)
    });
    same(
        "{ .reg .pred %x; setp.ne.xor.u32 %x|%d, %a, %b, %q; }",
        p,
        |a, b, c| u64::from((u(a) == u(b)) != (c & 1 == 1)),
    );
    same("set.lt.u32.s32 %d, %a, %b;", W, |a, b, _| {
        if s(a) < s(b) { 0xffff_ffff } else { 0 }
    });
    same("selp.b32 %d, %a, %b, %q;", W, |a, b, c| {
        if c & 1 == 1 { w(u(a)) } else { w(u(b)) }
    });
    same("slct.u32.s32 %d, %a, %b, %c;", W, |a, b, c| {
        if s(c) >= 0 { w(u(a)) } else { w(u(b)) }
    });
    same("min.s32 %d, %a, %b;", W, |a, b, _| w(s(a).min(s(b)) as u32));
    same("max.u64 %d, %a, %b;", D, |a, b, _| a.max(b));
    same(
        "{ .reg .pred %x; not.pred %x, %q; and.pred %d, %x, %q; }",
        p,
        |_, _, _| 0,
    );
    same(
        "{ .reg .pred %x; not.pred %x, %q; xor.pred %d, %x, %q; }",
        p,
        |_, _, _| 1,
    );
}

#[test]
fn conversions_cut_extend_and_saturate() {
    same(
        "cvt.s64.s32 %d, %a;",
        ["b32", "b32", "b32", "b64"],
        |a, _, _| i64::from(s(a)) as u64,
    );
    same(
        "cvt.u64.u32 %d, %a;",
        ["b32", "b32", "b32", "b64"],
        |a, _, _| w(u(a)),
    );
    same(
        "cvt.u16.u32 %d, %a;",
        ["b32", "b32", "b32", "b16"],
        |a, _, _| a & 0xffff,
    );
    same("cvt.s32.s8 %d, %a;", W, |a, _, _| {
        w(i32::from(a as i8) as u32)
    });
    same(
        "cvt.s16.s8 %d, %a;",
        ["b32", "b32", "b32", "b16"],
        |a, _, _| u64::from(i16::from(a as i8) as u16),
    );
    same("cvt.sat.s8.s32 %d, %a;", W, |a, _, _| {
        w(s(a).clamp(-128, 127) as u32)
    });
    same("cvt.sat.u8.s32 %d, %a;", W, |a, _, _| {
        w(s(a).clamp(0, 255) as u32)
    });
    same("cvt.sat.s32.u32 %d, %a;", W, |a, _, _| {
        w(u(a).min(i32::MAX as u32))
    });
}

/// A type and what it makes of the bytes in memory.
type Case = (&'static str, fn(u64) -> u64);

#[test]
fn memory_of_each_width_is_extended_as_its_type_says() {
    let cases: [Case; 4] = [
        ("s8", |a| i64::from(a as i8) as u64),
        ("u8", |a| a & 255),
        ("s16", |a| i64::from(a as i16) as u64),
        ("s32", |a| i64::from(s(a)) as u64),
    ];
    for (ty, expected) in cases {
        same(&format!("ld.global.{ty} %d, [%in];"), D, |a, _, _| {
            expected(a)
        });
    }
    same(
        "{ .reg .b32 %x, %y; ld.global.v2.u32 {%x, %y}, [%in]; mov.b64 %d, {%y, %x}; }",
        D,
        |a, _, _| a.rotate_left(32),
    );
    same(
        "{ .reg .b16 %x; mov.b32 {%x, _}, %a; mov.b32 %d, {%x, %x}; }",
        W,
        |a, _, _| (a & 0xffff) * 0x1_0001,
    );
    let small: Vec<[u64; 3]> = (0..64).map(|at| [at, at, at]).collect();
    same_on(
        "st.global.u8 [%in], %b; ld.global.u64 %d, [%in];",
        D,
        &small,
        |a, b, _| a & !255 | b & 255,
    );
}
