//! What the program's exit codes mean. A code is never reused.

use crate::error::Error;

/// All went well.
pub const OK: u8 = 0;
/// Something could not be done.
pub const RUNTIME: u8 = 1;
/// What was typed is no valid command.
pub const USAGE: u8 = 2;
/// Damage was found, or stepped over.
pub const DAMAGE: u8 = 3;

/// The code that tells of an error.
pub fn of(error: &Error) -> u8 {
    match error {
        Error::Usage(_) => USAGE,
        Error::Damage { .. } => DAMAGE,
        Error::Io { .. }
        | Error::Refused { .. }
        | Error::TooLarge(_)
        | Error::Invalid(_)
        | Error::Poisoned { .. }
        | Error::Interrupted => RUNTIME,
    }
}
