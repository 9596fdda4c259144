//! Core-dump attributes: stored and reported. No core dump is ever written, because no kernel that
//! faults here has a state to write.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use gpushare_cuda_abi::cuda::{CUcoredumpSettings as Setting, CUresult};

use super::Context;
use crate::error::Result;

/// The longest text of an attribute, without its NUL: the documentation gives up to 1023
/// characters.
const LONGEST: usize = 1023;

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Yes or no, one byte.
    Flag(bool),
    /// A file's or a pipe's name.
    Text(String),
    /// `CUCoredumpGenerationFlags`, four bytes.
    Bits(i32),
}

impl Value {
    /// Its bytes as the API passes them; a text with its NUL.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Flag(on) => vec![u8::from(*on)],
            Self::Text(text) => [text.as_bytes(), &[0]].concat(),
            Self::Bits(bits) => bits.to_ne_bytes().to_vec(),
        }
    }

    /// The value that these bytes are, of the same kind as this value. A text may end with a NUL.
    ///
    /// # Errors
    /// `INVALID_VALUE` for bytes of another size, a text that is too long or not UTF-8.
    fn of(&self, bytes: &[u8]) -> Result<Self> {
        let wrong = CUresult::INVALID_VALUE;
        match self {
            Self::Flag(_) => match bytes {
                [byte] => Ok(Self::Flag(*byte != 0)),
                _ => Err(wrong),
            },
            Self::Bits(_) => {
                let four = bytes.try_into().map_err(|_| wrong)?;
                Ok(Self::Bits(i32::from_ne_bytes(four)))
            }
            Self::Text(_) => {
                let end = bytes.iter().position(|byte| *byte == 0);
                let text = &bytes[..end.unwrap_or(bytes.len())];
                if text.len() > LONGEST {
                    return Err(wrong);
                }
                let text = std::str::from_utf8(text).map_err(|_| wrong)?;
                Ok(Self::Text(text.to_owned()))
            }
        }
    }
}

/// Attributes that were set: for all contexts (0), or for one, by its number.
type Set = HashMap<(u64, u32), Value>;

static SET: LazyLock<Mutex<Set>> = LazyLock::new(Mutex::default);

fn owner(context: Option<&Context>) -> u64 {
    context.map_or(0, Context::id)
}

/// The value that an attribute has before it is set.
fn usual(setting: Setting) -> Result<Value> {
    let name = |kind: &str| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Value::Text(format!(
            "{kind}.cuda.{}.{}",
            host.trim(),
            std::process::id()
        ))
    };
    match setting {
        Setting::ENABLE_ON_EXCEPTION | Setting::LIGHTWEIGHT | Setting::ENABLE_USER_TRIGGER => {
            Ok(Value::Flag(false))
        }
        Setting::TRIGGER_HOST => Ok(Value::Flag(true)),
        // A real driver tells the name of the documentation only once it is set.
        Setting::FILE => Ok(Value::Text(String::new())),
        Setting::PIPE => Ok(name("corepipe")),
        Setting::GENERATION_FLAGS => Ok(Value::Bits(0)),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// An attribute of one context, or (`None`) of all contexts that have no value of their own.
///
/// # Errors
/// `INVALID_VALUE` for an unknown attribute.
pub fn attribute(context: Option<&Context>, setting: Setting) -> Result<Value> {
    let usual = usual(setting)?;
    let set = SET.lock().unwrap_or_else(PoisonError::into_inner);
    let found = [owner(context), 0].map(|owner| set.get(&(owner, setting.0)));
    Ok(found.into_iter().flatten().next().cloned().unwrap_or(usual))
}

/// Sets an attribute to the value that these bytes are.
///
/// # Errors
/// `INVALID_VALUE` for an unknown attribute or bytes that are none of its values; `NOT_PERMITTED`
/// for the pipe's name once user triggers are enabled, or for user triggers of one context.
pub fn set_attribute(context: Option<&Context>, setting: Setting, bytes: &[u8]) -> Result {
    let value = usual(setting)?.of(bytes)?;
    let triggers = attribute(None, Setting::ENABLE_USER_TRIGGER)? == Value::Flag(true);
    let fixed = setting == Setting::PIPE && triggers
        || setting == Setting::ENABLE_USER_TRIGGER && context.is_some();
    if fixed {
        return Err(CUresult::NOT_PERMITTED);
    }
    let mut set = SET.lock().unwrap_or_else(PoisonError::into_inner);
    set.insert((owner(context), setting.0), value);
    Ok(())
}
