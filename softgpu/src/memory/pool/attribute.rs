//! Pool attributes.

use gpushare_cuda_abi::cuda::{CUmemPool_attribute as Attribute, CUresult};

use super::get;
use crate::Result;
use crate::world::process;

/// The first driver that tells what a pool was made with.
const TELLS_PROPERTIES: u32 = 13020;

/// An attribute's value, in the API's width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// An `int`.
    Int(i32),
    /// A `cuuint64_t`.
    Long(u64),
}

/// The width of an attribute; `None` for an unknown attribute.
pub fn width(attribute: Attribute) -> Option<Value> {
    match attribute {
        Attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES
        | Attribute::REUSE_ALLOW_OPPORTUNISTIC
        | Attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES
        | Attribute::ALLOCATION_TYPE
        | Attribute::EXPORT_HANDLE_TYPES
        | Attribute::LOCATION_ID
        | Attribute::LOCATION_TYPE
        | Attribute::HW_DECOMPRESS_ENABLED => Some(Value::Int(0)),
        Attribute::RELEASE_THRESHOLD
        | Attribute::RESERVED_MEM_CURRENT
        | Attribute::RESERVED_MEM_HIGH
        | Attribute::USED_MEM_CURRENT
        | Attribute::USED_MEM_HIGH
        | Attribute::MAX_POOL_SIZE => Some(Value::Long(0)),
        _ => None,
    }
}

/// Whether an attribute is what the pool was made with.
fn is_property(attribute: Attribute) -> bool {
    matches!(
        attribute,
        Attribute::ALLOCATION_TYPE
            | Attribute::EXPORT_HANDLE_TYPES
            | Attribute::LOCATION_ID
            | Attribute::LOCATION_TYPE
            | Attribute::MAX_POOL_SIZE
            | Attribute::HW_DECOMPRESS_ENABLED
    )
}

/// Reads an attribute.
///
/// # Errors
/// `INVALID_VALUE` for an unknown pool or attribute, or one that drivers of this version do not
/// have.
pub fn attribute(handle: usize, attribute: Attribute) -> Result<Value> {
    let pool = get(handle)?;
    if is_property(attribute) && process()?.spec().driver < TELLS_PROPERTIES {
        return Err(CUresult::INVALID_VALUE);
    }
    let state = pool.lock();
    let usage = state.model.usage();
    let props = &pool.props.0;
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    Ok(match attribute {
        Attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES => Value::Int(state.follow_events.into()),
        Attribute::REUSE_ALLOW_OPPORTUNISTIC => Value::Int(state.model.opportunistic.into()),
        Attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            Value::Int(state.internal_dependencies.into())
        }
        Attribute::RELEASE_THRESHOLD => Value::Long(state.model.threshold),
        Attribute::RESERVED_MEM_CURRENT => Value::Long(usage.reserved),
        Attribute::RESERVED_MEM_HIGH => Value::Long(usage.reserved_high),
        Attribute::USED_MEM_CURRENT => Value::Long(usage.used),
        Attribute::USED_MEM_HIGH => Value::Long(usage.used_high),
        Attribute::ALLOCATION_TYPE => Value::Int(number(props.allocType.0)),
        Attribute::EXPORT_HANDLE_TYPES => Value::Int(number(props.handleTypes.0)),
        Attribute::LOCATION_ID => Value::Int(props.location.id),
        Attribute::LOCATION_TYPE => Value::Int(number(props.location.type_.0)),
        Attribute::MAX_POOL_SIZE => Value::Long(props.maxSize as u64),
        Attribute::HW_DECOMPRESS_ENABLED => Value::Int(0),
        _ => return Err(CUresult::INVALID_VALUE),
    })
}

/// Sets an attribute: reuse rules and the threshold to any value, high-water marks only to 0.
///
/// # Errors
/// `INVALID_VALUE` for an unknown pool, an attribute that cannot be set, or a high-water mark set
/// to a value other than 0.
pub fn set_attribute(handle: usize, attribute: Attribute, value: Value) -> Result {
    let pool = get(handle)?;
    let mut state = pool.lock();
    match (attribute, value) {
        (Attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES, Value::Int(on)) => {
            state.follow_events = on != 0
        }
        (Attribute::REUSE_ALLOW_OPPORTUNISTIC, Value::Int(on)) => {
            state.model.opportunistic = on != 0
        }
        (Attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES, Value::Int(on)) => {
            state.internal_dependencies = on != 0
        }
        (Attribute::RELEASE_THRESHOLD, Value::Long(bytes)) => state.model.threshold = bytes,
        (Attribute::RESERVED_MEM_HIGH, Value::Long(0)) => state.model.reset_reserved_high(),
        (Attribute::USED_MEM_HIGH, Value::Long(0)) => state.model.reset_used_high(),
        _ => return Err(CUresult::INVALID_VALUE),
    }
    Ok(())
}
