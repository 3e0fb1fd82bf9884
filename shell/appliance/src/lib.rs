//! The appliance's storage side: drives, fill, and what is said to and by control.
//!
//! ```text
//! storage        composes all below; what `main` starts and stops
//! drives         one drive: its marker, its files, its index
//! pages          memory that direct I/O takes
//! format         makes a directory a drive
//! inspect        says what is on a drive, or in one file
//! ```

pub mod drives;
pub mod format;
pub mod inspect;
pub mod pages;
