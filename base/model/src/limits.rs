//! Bounds that more than one room relies on. A room's own bounds are in its `Config`.

use crate::units::Bytes;

/// Bytes read from a drive, sealed and sent in one go. Flat from 128 to 512 KiB, worse outside
/// (see docs/numbers.md).
pub const CHUNK_LEN: Bytes = Bytes::kib(256);

/// Direct I/O is in multiples of this on every drive; `format` checks that the drive agrees.
pub const DIRECT_ALIGN: Bytes = Bytes(4096);

/// Objects up to this size are served from memory: playlists, init segments, subtitles.
pub const SMALL_OBJECT_MAX: Bytes = Bytes::kib(64);

/// Largest object: 4 TiB, so that an offset fits in 42 bits and a block number in 24.
pub const OBJECT_LEN_MAX: Bytes = Bytes(1 << 42);

/// Longest path of a file inside an asset version, in bytes after percent-decoding.
pub const PATH_LEN_MAX: usize = 512;

/// Longest content type of a file. RFC 6838 allows 127 for each of its two names.
pub const CONTENT_TYPE_LEN_MAX: usize = 255;

/// Longest base URL of an appliance: a host name has at most 253 characters, and few have a tenth.
pub const BASE_URL_LEN_MAX: usize = 255;

/// Most drives in one appliance: as many as `DriveIndex` has values.
pub const DRIVES_MAX: usize = 256;

/// Most files in one asset version: six hours of 2 s segments in eight renditions, and room.
pub const FILES_PER_VERSION_MAX: usize = 131_072;
