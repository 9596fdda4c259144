//! The tables of symbols and types against their witnesses, one module a subject.

mod hooks_doc;
mod layout;
mod symbols;
mod values;
