//! On which processor a figure was measured, and by what means AES-GCM is done on it.

use anyhow::{Context, Result};
use serde::Serialize;

/// A processor, as the kernel tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Processor {
    /// Its name; and family and model, since a virtual machine may hide the name.
    pub(crate) processor: String,
    pub(crate) vector_extensions: Vec<String>,
}

/// What decides how fast AES-GCM is: of x86-64, then of arm64.
const EXTENSIONS: [&str; 13] = [
    "aes",
    "pclmulqdq",
    "avx",
    "avx2",
    "vaes",
    "vpclmulqdq",
    "avx512f",
    "avx512dq",
    "avx512bw",
    "avx512vl",
    "pmull",
    "sha3",
    "sve2",
];
/// What kernels for AVX-512 ask for, in aws-lc (`crypto_gcm_avx512_enabled`) and in OpenSSL.
const WIDE: [&str; 6] = ["vaes", "vpclmulqdq", "avx512f", "avx512dq", "avx512bw", "avx512vl"];
/// What ring's widest asks for.
const RING_WIDE: [&str; 3] = ["vaes", "vpclmulqdq", "avx2"];
/// From this version on OpenSSL has AES-GCM for AVX-512 (its CHANGES).
const OPENSSL_WIDE: (u32, u32) = (3, 1);

impl Processor {
    /// This machine's.
    pub(crate) fn read() -> Result<Self> {
        Ok(Self::of(tls::Processor::read().context("cannot read /proc/cpuinfo")?))
    }

    fn of(found: tls::Processor) -> Self {
        let unknown = || "unknown".to_owned();
        let name = Some(found.name).filter(|name| !name.is_empty());
        let extensions =
            EXTENSIONS.iter().filter(|wanted| found.flags.iter().any(|f| f == *wanted));
        Self {
            processor: name.unwrap_or_else(unknown),
            vector_extensions: extensions.map(ToString::to_string).collect(),
        }
    }

    /// What does AES-GCM for a library that does not say it, as far as it follows from the library
    /// and from this processor.
    pub(crate) fn aead_of(&self, library: &str) -> String {
        let has = |wanted: &str| self.vector_extensions.iter().any(|flag| flag == wanted);
        let all = |flags: &[&str]| flags.iter().all(|flag| has(flag));
        let (wide, ni) = (all(&WIDE), all(&["aes", "pclmulqdq"]));
        let kernel = if library.to_ascii_lowercase().contains("aws-lc") {
            ni.then_some(if wide { "AVX-512" } else { "AES-NI" })
        } else if library == "ring" {
            ni.then_some(if all(&RING_WIDE) { "AVX2 with VAES" } else { "AES-NI" })
        } else {
            let version = openssl(library).filter(|_| ni);
            version
                .map(|version| if wide && OPENSSL_WIDE <= version { "AVX-512" } else { "AES-NI" })
        };
        format!("{library}, {}", kernel.unwrap_or("kernel unknown"))
    }
}

/// Major and minor version of `OpenSSL 3.5.7 1 Jan 2026`.
fn openssl(library: &str) -> Option<(u32, u32)> {
    let mut numbers = library.strip_prefix("OpenSSL ")?.split(['.', ' ']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(flags: &str) -> Processor {
        let flags = flags.split(' ').map(ToOwned::to_owned).collect();
        Processor::of(tls::Processor { name: "x".to_owned(), flags })
    }

    #[test]
    fn a_processor_is_named_with_the_extensions_that_count() {
        let arm = with("fp aes pmull sve2x");
        assert_eq!((arm.processor.as_str(), arm.vector_extensions.len()), ("x", 2));
        assert_eq!(arm.vector_extensions, ["aes", "pmull"]);
        let hidden = Processor::of(tls::Processor::default());
        assert_eq!(
            hidden,
            Processor { processor: "unknown".to_owned(), vector_extensions: vec![] }
        );
        assert_ne!(Processor::read().unwrap().processor, "unknown");
    }

    #[test]
    fn the_kernel_follows_from_library_and_processor() {
        fn check(processor: &Processor, library: &str, kernel: &str) {
            assert_eq!(processor.aead_of(library), format!("{library}, {kernel}"));
        }
        let zen_3 = with("fpu aes pclmulqdq avx avx2 vaes vpclmulqdq");
        let wide = "aes pclmulqdq avx avx2 vaes vpclmulqdq avx512f avx512dq avx512bw avx512vl";
        let (wide, none) = (with(wide), with("fpu"));
        check(&wide, "aws-lc", "AVX-512");
        check(&wide, "AWS-LC 5.12.0", "AVX-512");
        check(&zen_3, "AWS-LC 5.12.0", "AES-NI");
        check(&wide, "OpenSSL 3.0.22 25 Aug 2026", "AES-NI");
        check(&wide, "OpenSSL 3.5.7 1 Jan 2026", "AVX-512");
        check(&zen_3, "OpenSSL 3.5.7 1 Jan 2026", "AES-NI");
        check(&none, "OpenSSL 3.5.7 1 Jan 2026", "kernel unknown");
        check(&wide, "BoringSSL", "kernel unknown");
        check(&wide, "ring", "AVX2 with VAES");
        check(&zen_3, "ring", "AVX2 with VAES");
        check(&with("aes pclmulqdq avx2"), "ring", "AES-NI");
        check(&none, "ring", "kernel unknown");
        check(&with("aes pclmulqdq vaes vpclmulqdq avx512f"), "aws-lc", "AES-NI");
    }
}
