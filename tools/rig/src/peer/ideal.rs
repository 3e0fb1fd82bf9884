//! The loop that does the least, as a peer: `serve-ideal` of this program, in another process.

use super::{Place, Variant, Version};

/// From memory, or read for each piece; `lines` are words of its command.
pub(super) const VARIANTS: [Variant; 2] =
    [Variant { name: "memory", lines: "" }, Variant { name: "drive", lines: "--cold" }];

/// It seals with the library that it is told, or ends.
pub(super) fn version(library: &str) -> Version {
    let server = format!("nearcast-lab/{}", env!("CARGO_PKG_VERSION"));
    Version { server, tls: library.to_owned() }
}

/// What makes it serve.
pub(super) fn words(variant: Variant, place: &Place<'_>, library: &str) -> Vec<String> {
    let path = |path: &std::path::Path| path.display().to_string();
    let mut words = vec!["serve-ideal".to_owned(), path(place.root)];
    words.extend(["--listen".to_owned(), place.address.to_string()]);
    words.extend(["--certificate".to_owned(), path(&place.certificate.chain)]);
    words.extend(["--key".to_owned(), path(&place.certificate.key)]);
    words.extend(["--aead".to_owned(), library.to_owned()]);
    words.extend(variant.lines.split_whitespace().map(str::to_owned));
    words
}
