//! The filesystem.

pub mod beacon;
pub mod caller;
pub mod change;
pub mod errno;
pub mod fuse;
pub mod mount_table;
pub mod mountpoint;
pub mod node;
pub mod pool;
pub mod routes;
pub mod session;
pub mod tree;
pub mod unmount;
