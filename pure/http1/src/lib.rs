//! HTTP/1.1 bytes to requests and back.
