//! Floating-point numbers against Rust's own arithmetic, and directed rounding against `f64`.

use crate::common::{Random, same, same_on};

const F: [&str; 4] = ["f32"; 4];
const D: [&str; 4] = ["f64"; 4];

fn f(value: u64) -> f32 {
    f32::from_bits(value as u32)
}

fn d(value: u64) -> f64 {
    f64::from_bits(value)
}

fn w(value: f32) -> u64 {
    u64::from(if value.is_nan() {
        0x7fff_ffff
    } else {
        value.to_bits()
    })
}

fn x(value: f64) -> u64 {
    if value.is_nan() {
        0x7ff8_0000_0000_0000
    } else {
        value.to_bits()
    }
}

/// Numbers of ordinary size, and some at the edges.
fn numbers(width: u32) -> Vec<[u64; 3]> {
    let mut random = Random(77);
    let mut one = || {
        let small = (random.next() % 4001) as f64 - 2000.0;
        let value = match random.next() % 6 {
            0 => small,
            1 => small * 0.001_3,
            2 => d(random.next()),
            3 => f64::from(f(random.next())),
            4 => [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-40]
                [(random.next() % 6) as usize],
            _ => small * 1e30,
        };
        if width == 32 {
            u64::from((value as f32).to_bits())
        } else {
            value.to_bits()
        }
    };
    (0..2000).map(|_| [one(), one(), one()]).collect()
}

#[test]
fn arithmetic_of_32_bits_is_rusts() {
    let n = numbers(32);
    same_on("add.rn.f32 %d, %a, %b;", F, &n, |a, b, _| w(f(a) + f(b)));
    same_on("sub.f32 %d, %a, %b;", F, &n, |a, b, _| w(f(a) - f(b)));
    same_on("mul.f32 %d, %a, %b;", F, &n, |a, b, _| w(f(a) * f(b)));
    same_on("div.rn.f32 %d, %a, %b;", F, &n, |a, b, _| w(f(a) / f(b)));
    same_on("fma.rn.f32 %d, %a, %b, %c;", F, &n, |a, b, c| {
        w(f(a).mul_add(f(b), f(c)))
    });
    same_on("sqrt.rn.f32 %d, %a;", F, &n, |a, _, _| w(f(a).sqrt()));
    same_on("rcp.rn.f32 %d, %a;", F, &n, |a, _, _| w(1.0 / f(a)));
    same_on("neg.f32 %d, %a;", F, &n, |a, _, _| a ^ 0x8000_0000);
    same_on("abs.f32 %d, %a;", F, &n, |a, _, _| a & 0x7fff_ffff);
    same_on("add.sat.f32 %d, %a, %b;", F, &n, |a, b, _| {
        let sum = f(a) + f(b);
        w(if sum > 0.0 { sum.min(1.0) } else { 0.0 })
    });
}

#[test]
fn arithmetic_of_64_bits_is_rusts() {
    let n = numbers(64);
    same_on("add.rn.f64 %d, %a, %b;", D, &n, |a, b, _| x(d(a) + d(b)));
    same_on("mul.rn.f64 %d, %a, %b;", D, &n, |a, b, _| x(d(a) * d(b)));
    same_on("div.rn.f64 %d, %a, %b;", D, &n, |a, b, _| x(d(a) / d(b)));
    same_on("fma.rn.f64 %d, %a, %b, %c;", D, &n, |a, b, c| {
        x(d(a).mul_add(d(b), d(c)))
    });
    same_on("sqrt.rn.f64 %d, %a;", D, &n, |a, _, _| x(d(a).sqrt()));
}

/// The exact value `high + low` lies on the side that the mode rounds to, and next to the result.
fn is_rounded(result: f32, high: f64, low: f64, mode: &str) -> bool {
    let side = |value: f32| {
        let difference = f64::from(value) - high;
        // Positive: the value is above the exact one.
        if difference == low {
            0.0
        } else {
            difference - low
        }
    };
    let (next_up, next_down) = (result.next_up(), result.next_down());
    let down = mode == "rm" || (mode == "rz" && high > 0.0);
    if down {
        side(result) <= 0.0 && side(next_up) > 0.0
    } else {
        side(result) >= 0.0 && side(next_down) < 0.0
    }
}

#[test]
fn directed_rounding_is_next_to_the_exact_result() {
    let mut random = Random(5);
    let mut one = || {
        let size = 10_f64.powi((random.next() % 9) as i32 - 4);
        let value = ((random.next() % 2_000_001) as f64 - 1_000_000.5) * 1e-5 * size;
        u64::from((value as f32).to_bits())
    };
    let n: Vec<[u64; 3]> = (0..500).map(|_| [one(), one(), one()]).collect();
    for mode in ["rz", "rm", "rp"] {
        let check = |text: String, exact: fn(f64, f64, f64) -> (f64, f64)| {
            for (result, [a, b, c]) in crate::common::results(&text, F, &n).into_iter().zip(&n) {
                let (high, low) = exact(f64::from(f(*a)), f64::from(f(*b)), f64::from(f(*c)));
                assert!(
                    high == 0.0 || is_rounded(f(result), high, low, mode),
                    "{text} of {} {} {}: {}",
                    f(*a),
                    f(*b),
                    f(*c),
                    f(result)
                );
            }
        };
        // A product of two such numbers is exact in 64 bits, and so is the rest of a sum.
        check(format!("mul.{mode}.f32 %d, %a, %b;"), |a, b, _| {
            (a * b, 0.0)
        });
        check(format!("add.{mode}.f32 %d, %a, %b;"), |a, b, _| {
            let sum = a + b;
            let rest = sum - a;
            (sum, (a - (sum - rest)) + (b - rest))
        });
        check(format!("fma.{mode}.f32 %d, %a, %b, %c;"), |a, b, c| {
            let (product, sum) = (a * b, a * b + c);
            let rest = sum - product;
            (sum, (product - (sum - rest)) + (c - rest))
        });
    }
}

#[test]
fn directed_rounding_of_64_bits_goes_to_its_side() {
    let n: Vec<[u64; 3]> = vec![
        [1.0_f64.to_bits(), 3.0_f64.to_bits(), 1e-30_f64.to_bits()],
        [(-1.0_f64).to_bits(), 3.0_f64.to_bits(), 1e-30_f64.to_bits()],
    ];
    let third = 1.0_f64 / 3.0;
    same_on("div.rp.f64 %d, %a, %b;", D, &n, |a, _, _| {
        if d(a) > 0.0 {
            third.next_up().to_bits()
        } else {
            (-third).to_bits()
        }
    });
    same_on("div.rm.f64 %d, %a, %b;", D, &n, |a, _, _| {
        if d(a) > 0.0 {
            third.to_bits()
        } else {
            (-third).next_down().to_bits()
        }
    });
    same_on("add.rp.f64 %d, %a, %c;", D, &n, |a, _, _| {
        d(a).next_up().to_bits()
    });
    same_on("add.rz.f64 %d, %a, %c;", D, &n, |a, _, _| {
        if d(a) > 0.0 {
            a
        } else {
            d(a).next_up().to_bits()
        }
    });
    same_on("fma.rm.f64 %d, %a, %b, %c;", D, &n, |a, _, _| {
        (d(a) * 3.0).to_bits()
    });
}

#[test]
fn numbers_too_small_are_zero_if_the_instruction_says_so() {
    let n = [
        [1, 0, 0],
        [0x8000_0001, 0, 0],
        [0x0080_0000, 0x3f00_0000, 0],
    ];
    same_on("add.ftz.f32 %d, %a, 0f00000000;", F, &n[..1], |_, _, _| 0);
    same_on("mul.ftz.f32 %d, %a, 0f3f800000;", F, &n[1..2], |_, _, _| {
        0x8000_0000
    });
    same_on("mul.ftz.f32 %d, %a, %b;", F, &n[2..], |_, _, _| 0);
    same_on("mul.f32 %d, %a, %b;", F, &n[2..], |_, _, _| 0x0040_0000);
}

#[test]
fn the_smaller_of_a_number_and_nan_is_the_number() {
    let n = numbers(32);
    let pick = |a: u64, b: u64, least: bool| {
        let (p, q) = (f(a), f(b));
        if p.is_nan() || q.is_nan() {
            return w(if p.is_nan() { q } else { p });
        }
        let a_is_less = p < q || (p == q && p.is_sign_negative());
        if a_is_less == least { a } else { b }
    };
    same_on("min.f32 %d, %a, %b;", F, &n, |a, b, _| pick(a, b, true));
    same_on("max.f32 %d, %a, %b;", F, &n, |a, b, _| pick(a, b, false));
    same_on("max.NaN.f32 %d, %a, %b;", F, &n, |a, b, _| {
        if f(a).is_nan() || f(b).is_nan() {
            0x7fff_ffff
        } else {
            pick(a, b, false)
        }
    });
    let p = ["f32", "f32", "f32", "pred"];
    same_on("setp.lt.f32 %d, %a, %b;", p, &n, |a, b, _| {
        u64::from(f(a) < f(b))
    });
    same_on("setp.neu.f32 %d, %a, %b;", p, &n, |a, b, _| {
        u64::from(f(a) != f(b))
    });
    same_on("setp.ne.f32 %d, %a, %b;", p, &n, |a, b, _| {
        u64::from(f(a) < f(b) || f(a) > f(b))
    });
    same_on("setp.nan.f32 %d, %a, %b;", p, &n, |a, b, _| {
        u64::from(f(a).is_nan() || f(b).is_nan())
    });
    same_on("testp.finite.f32 %d, %a;", p, &n, |a, _, _| {
        u64::from(f(a).is_finite())
    });
    same_on("copysign.f32 %d, %a, %b;", F, &n, |a, b, _| {
        a & 0x8000_0000 | b & 0x7fff_ffff
    });
}

#[test]
fn conversions_round_as_they_say_and_stay_in_range() {
    let n = numbers(32);
    let t = ["f32", "f32", "f32", "b32"];
    same_on("cvt.rzi.s32.f32 %d, %a;", t, &n, |a, _, _| {
        u64::from(f(a) as i32 as u32)
    });
    same_on("cvt.rni.s32.f32 %d, %a;", t, &n, |a, _, _| {
        u64::from(f(a).round_ties_even() as i32 as u32)
    });
    same_on("cvt.rmi.s32.f32 %d, %a;", t, &n, |a, _, _| {
        u64::from(f(a).floor() as i32 as u32)
    });
    same_on("cvt.rpi.u32.f32 %d, %a;", t, &n, |a, _, _| {
        u64::from(f(a).ceil() as u32)
    });
    same_on("cvt.rni.f32.f32 %d, %a;", F, &n, |a, _, _| {
        w(f(a).round_ties_even())
    });
    same_on(
        "cvt.f64.f32 %d, %a;",
        ["f32", "f32", "f32", "f64"],
        &n,
        |a, _, _| x(f64::from(f(a))),
    );
    let n = numbers(64);
    same_on(
        "cvt.rn.f32.f64 %d, %a;",
        ["f64", "f64", "f64", "f32"],
        &n,
        |a, _, _| w(d(a) as f32),
    );
    same_on(
        "cvt.rzi.s64.f64 %d, %a;",
        ["f64", "f64", "f64", "b64"],
        &n,
        |a, _, _| {
            if d(a).is_nan() {
                1 << 63
            } else {
                d(a) as i64 as u64
            }
        },
    );
    same(
        "cvt.rn.f32.s32 %d, %a;",
        ["b32", "b32", "b32", "f32"],
        |a, _, _| w(a as i32 as f32),
    );
    same(
        "cvt.rn.f32.u64 %d, %a;",
        ["b64", "b64", "b64", "f32"],
        |a, _, _| w(a as f32),
    );
    same(
        "cvt.rn.f64.s64 %d, %a;",
        ["b64", "b64", "b64", "f64"],
        |a, _, _| x(a as i64 as f64),
    );
    same(
        "cvt.rz.f32.u32 %d, %a;",
        ["b32", "b32", "b32", "f32"],
        |a, _, _| {
            let near = a as u32 as f32;
            w(if f64::from(near) > f64::from(a as u32) {
                near.next_down()
            } else {
                near
            })
        },
    );
}

#[test]
fn halves_are_exact_and_rounded_once() {
    let all: Vec<[u64; 3]> = (0..=0xffff).map(|bits| [bits, 0, 0]).collect();
    // There and back: each number of 16 bits is a number of 32 bits.
    let nan = |bits: u64| bits & 0x7c00 == 0x7c00 && bits & 0x3ff != 0;
    let there = "{ .reg .f32 %x; cvt.f32.f16 %x, %a; cvt.rn.f16.f32 %d, %x; }";
    same_on(
        there,
        ["b16"; 4],
        &all,
        |a, _, _| if nan(a) { 0x7fff } else { a },
    );
    let brain = "{ .reg .f32 %x; cvt.f32.bf16 %x, %a; cvt.rn.bf16.f32 %d, %x; }";
    same_on(brain, ["b16"; 4], &all, |a, _, _| {
        if a & 0x7f80 == 0x7f80 && a & 0x7f != 0 {
            0x7fff
        } else {
            a
        }
    });
    let one = [[0x3c00_3c00, 0x4000_4200, 0]];
    same_on("add.f16x2 %d, %a, %b;", ["b32"; 4], &one, |_, _, _| {
        0x4200_4400
    });
    same_on(
        "fma.rn.f16x2 %d, %a, %b, %b;",
        ["b32"; 4],
        &one,
        |_, _, _| 0x4400_4600,
    );
    same_on(
        "cvt.rn.f16x2.f32 %d, %a, %b;",
        ["f32", "f32", "f32", "b32"],
        &[[0x3f80_0000, 0x4000_0000, 0]],
        |_, _, _| 0x3c00_4000,
    );
    // 2049 lies between two numbers of 16 bits; the even one is 2048.
    same_on(
        "cvt.rn.f16.f32 %d, %a;",
        ["f32", "f32", "f32", "b16"],
        &[[u64::from(2049_f32.to_bits()), 0, 0]],
        |_, _, _| 0x6800,
    );
    same_on(
        "cvt.rp.f16.f32 %d, %a;",
        ["f32", "f32", "f32", "b16"],
        &[[u64::from(2049_f32.to_bits()), 0, 0]],
        |_, _, _| 0x6801,
    );
}

/// An instruction and its function.
type Case = (&'static str, fn(f64) -> f64);

#[test]
fn approximations_are_within_a_unit_of_the_function() {
    let n: Vec<[u64; 3]> = (1..500)
        .map(|at| [u64::from((at as f32 * 0.01).to_bits()), 0, 0])
        .collect();
    let cases: [Case; 7] = [
        ("sqrt.approx.ftz", f64::sqrt),
        ("rsqrt.approx", |x| 1.0 / x.sqrt()),
        ("sin.approx", f64::sin),
        ("cos.approx", f64::cos),
        ("lg2.approx", f64::log2),
        ("ex2.approx.ftz", f64::exp2),
        ("tanh.approx", f64::tanh),
    ];
    for (name, function) in cases {
        same_on(&format!("{name}.f32 %d, %a;"), F, &n, |a, _, _| {
            w(function(f64::from(f(a))) as f32)
        });
    }
}
