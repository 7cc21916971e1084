//! The filesystem.

pub mod beacon;
pub mod mount_table;
pub mod mountpoint;
pub mod session;
pub mod unmount;
