//! Instructions at which threads meet: barriers, shuffles, votes.

use super::Operands;
use super::words::{Unknown, Words};
use crate::code::{Change, Dst, Meeting, Op, Src, Tally, Test};
use crate::ty::Ty;

/// A predicate that holds.
const ALWAYS: Test = Test {
    src: Src::Imm(1),
    negative: false,
};

impl Operands<'_, '_, '_> {
    /// The operation, if the instruction is of this family.
    pub(super) fn meeting(&mut self, words: &mut Words<'_>) -> Option<Result<Op, Unknown>> {
        let op = match self.name {
            "bar" if words.take("warp") => {
                words.take("sync");
                self.warp_barrier()
            }
            "bar" | "barrier" => self.barrier(words),
            "shfl" => self.shuffle(words),
            "vote" => self.vote(words),
            "match" => self.matching(words),
            "redux" => self.redux(words),
            "elect" => self.elect(words),
            "activemask" => {
                words.take("b32");
                self.dst(0).map(|d| Op::ActiveMask { d })
            }
            _ => return None,
        };
        Some(op)
    }

    fn meet(&self, of: Meeting, mask: Option<Src>) -> Op {
        let (d, p, none) = (Dst::NONE, Dst::NONE, Src::Imm(0));
        Op::Meet {
            of,
            ty: Ty::B32,
            d,
            p,
            a: none,
            b: none,
            c: none,
            test: ALWAYS,
            mask,
        }
    }

    fn warp_barrier(&mut self) -> Result<Op, Unknown> {
        let mask = self.src(0, Ty::B32)?;
        Ok(self.meet(Meeting::Sync, Some(mask)))
    }

    fn barrier(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        words.drop(&["cta", "aligned"]);
        let (arrives, reduces) = (words.take("arrive"), words.take("red"));
        words.take("sync");
        if !reduces {
            let a = self.src(0, Ty::U32)?;
            let count = if self.has(1) {
                Some(self.src(1, Ty::U32)?)
            } else {
                None
            };
            if arrives && count.is_none() {
                return Err("has no number of threads".to_owned());
            }
            return Ok(Op::Bar {
                a,
                count,
                tally: Tally::Nothing,
                test: ALWAYS,
                d: Dst::NONE,
                arrives,
            });
        }
        let tally = words.take_as(|word| match word {
            "popc" => Some(Tally::Popc),
            "and" => Some(Tally::And),
            "or" => Some(Tally::Or),
            _ => None,
        });
        words.ty()?;
        let last = self.args.len() - 1;
        let count = if last > 2 {
            Some(self.src(2, Ty::U32)?)
        } else {
            None
        };
        let tally = tally.ok_or("has a reduction that is not known")?;
        Ok(Op::Bar {
            a: self.src(1, Ty::U32)?,
            count,
            tally,
            test: self.test(last)?,
            d: self.dst(0)?,
            arrives: false,
        })
    }

    fn shuffle(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let synchronous = words.take("sync");
        let of = words.take_as(|word| {
            Some(match word {
                "up" => Meeting::ShflUp,
                "down" => Meeting::ShflDown,
                "bfly" => Meeting::ShflBfly,
                "idx" => Meeting::ShflIdx,
                _ => return None,
            })
        });
        let ty = words.ty()?;
        let of = of.ok_or("has a direction that is not known")?;
        let (d, p) = self.results(0)?;
        let (a, b, c) = (
            self.src(1, ty)?,
            self.src(2, Ty::B32)?,
            self.src(3, Ty::B32)?,
        );
        let mask = if synchronous {
            Some(self.src(4, Ty::B32)?)
        } else {
            None
        };
        Ok(Op::Meet {
            of,
            ty,
            d,
            p,
            a,
            b,
            c,
            test: ALWAYS,
            mask,
        })
    }

    fn vote(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let synchronous = words.take("sync");
        let of = words.take_as(|word| {
            Some(match word {
                "all" => Meeting::VoteAll,
                "any" => Meeting::VoteAny,
                "uni" => Meeting::VoteUni,
                "ballot" => Meeting::VoteBallot,
                _ => return None,
            })
        });
        let (ty, of) = (words.ty()?, of.ok_or("has a vote that is not known")?);
        let mask = if synchronous {
            Some(self.src(2, Ty::B32)?)
        } else {
            None
        };
        let (d, test, none) = (self.dst(0)?, self.test(1)?, Src::Imm(0));
        Ok(Op::Meet {
            of,
            ty,
            d,
            p: Dst::NONE,
            a: none,
            b: none,
            c: none,
            test,
            mask,
        })
    }

    fn matching(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        words.take("sync");
        let all = words.take("all");
        words.take("any");
        let of = if all {
            Meeting::MatchAll
        } else {
            Meeting::MatchAny
        };
        let ty = words.ty()?;
        let (d, p) = self.results(0)?;
        let (a, mask, none) = (self.src(1, ty)?, self.src(2, Ty::B32)?, Src::Imm(0));
        Ok(Op::Meet {
            of,
            ty,
            d,
            p,
            a,
            b: none,
            c: none,
            test: ALWAYS,
            mask: Some(mask),
        })
    }

    fn redux(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        words.take("sync");
        let of = words.take_as(Change::named).filter(|of| of.is_reduction());
        let (ty, of) = (words.ty()?, of.ok_or("has a reduction that is not known")?);
        if !ty.is_whole() {
            return Err("has a type that is not known".to_owned());
        }
        let (d, a, mask, none) = (
            self.dst(0)?,
            self.src(1, ty)?,
            self.src(2, Ty::B32)?,
            Src::Imm(0),
        );
        let (p, of) = (Dst::NONE, Meeting::Redux(of));
        Ok(Op::Meet {
            of,
            ty,
            d,
            p,
            a,
            b: none,
            c: none,
            test: ALWAYS,
            mask: Some(mask),
        })
    }

    fn elect(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        words.take("sync");
        let ((d, p), mask, none) = (self.results(0)?, self.src(1, Ty::B32)?, Src::Imm(0));
        Ok(Op::Meet {
            of: Meeting::Elect,
            ty: Ty::B32,
            d,
            p,
            a: none,
            b: none,
            c: none,
            test: ALWAYS,
            mask: Some(mask),
        })
    }
}
