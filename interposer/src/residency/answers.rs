//! The mover's answers to the daemon's orders, as messages.

use gpushare_pacing::mover::Answer;
use gpushare_protocol::wire::Request;

/// An answer about a device, on which `residue` bytes stay whatever leaves.
pub(super) fn message(device_index: u8, answer: Answer, residue: u64) -> Request {
    match answer {
        Answer::Sealed { epoch } => Request::Sealed {
            device_index,
            epoch,
        },
        Answer::Busy {
            epoch,
            why,
            retry_ms,
        } => Request::SealBusy {
            device_index,
            epoch,
            why,
            retry_ms,
        },
        Answer::Moved { epoch, away } => Request::Moved {
            device_index,
            epoch,
            away,
        },
        Answer::Away { epoch, away } => Request::Away {
            device_index,
            epoch,
            away,
            residue,
        },
        Answer::Back { epoch } => Request::Back {
            device_index,
            epoch,
        },
        Answer::NoRoom { epoch, bytes } => Request::NoRoom {
            device_index,
            epoch,
            bytes,
        },
    }
}
