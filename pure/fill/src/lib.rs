//! From manifest to published objects.
