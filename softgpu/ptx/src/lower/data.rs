//! Moves, memory and atomic operations.

use super::Operands;
use super::words::{Unknown, Words};
use crate::code::{Change, Op, Place, Src};
use crate::ty::Ty;

/// Words of memory instructions that change nothing here: memory is one, and always in order.
const ORDERS: &[&str] = &[
    "weak", "relaxed", "acquire", "release", "acq_rel", "sc", "volatile", "mmio", "cta", "cluster",
    "gpu", "sys", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified",
];
const CACHES: &[&str] = &["L1::", "L2::"];

fn place(word: &str) -> Option<Place> {
    Some(match word {
        // Constants are in global memory here.
        "global" | "const" => Place::Global,
        "shared" | "shared::cta" | "shared::cluster" => Place::Shared,
        "local" => Place::Local,
        "param" | "param::entry" | "param::func" => Place::Param,
        _ => return None,
    })
}

impl Operands<'_, '_, '_> {
    /// The operation, if the instruction is of this family.
    pub(super) fn data(&mut self, words: &mut Words<'_>) -> Option<Result<Op, Unknown>> {
        let op = match self.name {
            "mov" => self.mov(words),
            "ld" | "ldu" => self.load(words),
            "st" => self.store(words),
            "atom" | "red" => self.atomic(words),
            "cvta" => self.cvta(words),
            "isspacep" => self.isspacep(words),
            "membar" | "fence" | "prefetch" | "prefetchu" | "discard" | "applypriority"
            | "pmevent" => {
                *words = Words::new(&[]);
                Ok(Op::Nop)
            }
            _ => return None,
        };
        Some(op)
    }

    fn mov(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let ty = words.ty()?;
        match (self.is_vector(0), self.is_vector(1)) {
            (false, false) => Ok(Op::Mov {
                d: self.dst(0)?,
                a: self.src(1, ty)?,
            }),
            (true, false) => {
                let parts = self.parts(0)?;
                let ds = parts
                    .iter()
                    .map(|part| self.result(part))
                    .collect::<Result<_, _>>()?;
                Ok(Op::Unpack {
                    ds,
                    bits: part_of(ty, parts.len())?,
                    a: self.src(1, ty)?,
                })
            }
            (false, true) => {
                let parts = self.parts(1)?;
                let bits = part_of(ty, parts.len())?;
                let of = if bits == 32 {
                    Ty::B32
                } else if bits == 16 {
                    Ty::B16
                } else {
                    Ty::B8
                };
                let parts = parts
                    .iter()
                    .map(|part| self.value(part, of))
                    .collect::<Result<_, _>>()?;
                Ok(Op::Pack {
                    d: self.dst(0)?,
                    bits,
                    parts,
                })
            }
            (true, true) => Err("moves a vector".to_owned()),
        }
    }

    /// The place and the type of a memory instruction.
    fn accessed(words: &mut Words<'_>) -> Result<(Place, Ty), Unknown> {
        words.drop(ORDERS);
        words.drop_starting(CACHES);
        let place = words.take_as(place).unwrap_or(Place::Generic);
        words.drop(&["v2", "v4", "v8"]);
        let ty = words.ty()?;
        if ty == Ty::Pred {
            Err("has a type that is not known".to_owned())
        } else {
            Ok((place, ty))
        }
    }

    fn load(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let (place, ty) = Self::accessed(words)?;
        let parts = self.parts(0)?;
        let ds = parts
            .iter()
            .map(|part| self.result(part))
            .collect::<Result<_, _>>()?;
        let (a, offset) = self.memory(1)?;
        Ok(Op::Ld {
            place,
            ty,
            ds,
            a,
            offset,
        })
    }

    fn store(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let (place, ty) = Self::accessed(words)?;
        let (a, offset) = self.memory(0)?;
        let parts = self.parts(1)?;
        let values = parts
            .iter()
            .map(|part| self.value(part, ty))
            .collect::<Result<_, _>>()?;
        Ok(Op::St {
            place,
            ty,
            values,
            a,
            offset,
        })
    }

    fn atomic(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let of = words.take_as(Change::named);
        let of = of.ok_or("has a change that is not known")?;
        words.drop(&["noftz"]);
        if self.is_vector(0) || self.is_vector(1) {
            return Err("changes a vector".to_owned());
        }
        let (place, ty) = Self::accessed(words)?;
        let first = usize::from(self.name == "atom");
        let d = if first == 1 {
            self.dst(0)?
        } else {
            crate::code::Dst::NONE
        };
        let (a, offset) = self.memory(first)?;
        let b = self.src(first + 1, ty)?;
        let c = if of == Change::Cas {
            self.src(first + 2, ty)?
        } else {
            Src::Imm(0)
        };
        let fits = match of {
            Change::Add => ty.bytes() >= 4 || ty.is_float(),
            Change::Inc | Change::Dec => ty == Ty::U32,
            Change::Cas | Change::Exch => ty.is_whole(),
            _ => ty.bytes() >= 4 && ty.is_whole(),
        };
        if fits {
            Ok(Op::Atom {
                of,
                place,
                ty,
                d,
                a,
                offset,
                b,
                c,
            })
        } else {
            Err("has a type that is not known".to_owned())
        }
    }

    fn cvta(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let from_generic = words.take("to");
        let place = words
            .take_as(place)
            .ok_or("has a space that is not known")?;
        let ty = words.ty()?;
        Ok(Op::Cvta {
            place,
            from_generic,
            d: self.dst(0)?,
            a: self.src(1, ty)?,
        })
    }

    fn isspacep(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let place = words
            .take_as(place)
            .ok_or("has a space that is not known")?;
        Ok(Op::Isspacep {
            place,
            d: self.dst(0)?,
            a: self.src(1, Ty::U64)?,
        })
    }
}

/// The width of each of `count` parts of a type.
fn part_of(ty: Ty, count: usize) -> Result<u32, Unknown> {
    let count = u32::try_from(count).unwrap_or(0);
    let bits = ty
        .bits()
        .checked_div(count)
        .filter(|bits| bits * count == ty.bits() && *bits >= 8);
    bits.ok_or_else(|| "has another number of parts than its type".to_owned())
}
