//! The words of an instruction after its name. Every word must be known: a form that is not known
//! here is not run as another one.

use crate::math::Mode;
use crate::math::float::Form;
use crate::ty::Ty;

/// The words that are not taken yet.
pub(crate) struct Words<'a>(Vec<&'a str>);

/// Why an instruction is not known here.
pub(crate) type Unknown = String;

impl<'a> Words<'a> {
    pub(crate) fn new(words: &[&'a str]) -> Self {
        Self(words.to_vec())
    }

    /// Takes a word; whether it was there.
    pub(crate) fn take(&mut self, word: &str) -> bool {
        let at = self.0.iter().position(|found| *found == word);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Takes the first word that `of` knows.
    pub(crate) fn take_as<T>(&mut self, of: impl Fn(&str) -> Option<T>) -> Option<T> {
        let at = self.0.iter().position(|word| of(word).is_some())?;
        of(self.0.remove(at))
    }

    /// Drops words that change nothing here.
    pub(crate) fn drop(&mut self, words: &[&str]) {
        self.0.retain(|word| !words.contains(word));
    }

    /// Drops words that begin so.
    pub(crate) fn drop_starting(&mut self, starts: &[&str]) {
        self.0
            .retain(|word| !starts.iter().any(|start| word.starts_with(start)));
    }

    /// The next type.
    pub(crate) fn ty(&mut self) -> Result<Ty, Unknown> {
        self.take_as(Ty::named)
            .ok_or_else(|| "has a type that is not known".to_owned())
    }

    /// The rounding of a result.
    pub(crate) fn rounding(&mut self) -> Option<Mode> {
        self.take_as(|word| {
            Some(match word {
                "rn" => Mode::Nearest,
                "rna" => Mode::Away,
                "rz" => Mode::Zero,
                "rm" => Mode::Down,
                "rp" => Mode::Up,
                _ => return None,
            })
        })
    }

    /// The rounding to a whole number.
    pub(crate) fn whole_rounding(&mut self) -> Option<Mode> {
        self.take_as(|word| {
            Some(match word {
                "rni" => Mode::Nearest,
                "rzi" => Mode::Zero,
                "rmi" => Mode::Down,
                "rpi" => Mode::Up,
                _ => return None,
            })
        })
    }

    /// The form of floating-point results; the type is the next one.
    pub(crate) fn form(&mut self) -> Result<Form, Unknown> {
        let mode = self.rounding().unwrap_or_default();
        self.drop(&["approx", "full", "noftz"]);
        let (ftz, sat) = (self.take("ftz"), self.take("sat"));
        Ok(Form {
            ty: self.ty()?,
            mode,
            ftz,
            sat,
        })
    }

    /// Every word was taken.
    pub(crate) fn done(self) -> Result<(), Unknown> {
        self.0.first().map_or(Ok(()), |word| {
            Err(format!("has `.{word}`, which is not known"))
        })
    }

    pub(crate) fn has_type(&self, of: impl Fn(Ty) -> bool) -> bool {
        self.0
            .iter()
            .filter_map(|word| Ty::named(word))
            .next_back()
            .is_some_and(of)
    }
}
