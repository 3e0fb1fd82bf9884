//! On which processor a figure was measured, and by what means AES-GCM is done on it.

use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;

/// A processor, as the kernel tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Processor {
    /// Its name; and family and model, since a virtual machine may hide the name.
    pub(crate) processor: String,
    /// Of `EXTENSIONS` those that it has.
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
        let text = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
        Ok(Self::parse(&text))
    }

    /// The first that is listed.
    fn parse(cpuinfo: &str) -> Self {
        let field = |name: &str| {
            let named = |line: &str| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            };
            cpuinfo.lines().find_map(named)
        };
        let name = field("model name").or_else(|| field("CPU implementer"));
        let name = name.unwrap_or_else(|| "unknown".to_owned());
        let kind: Vec<String> = ["cpu family", "model", "CPU part"]
            .iter()
            .filter_map(|key| Some(format!("{key} {}", field(key)?)))
            .collect();
        let kind = if kind.is_empty() { String::new() } else { format!(" ({})", kind.join(", ")) };
        let flags = field("flags").or_else(|| field("Features")).unwrap_or_default();
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let extensions = EXTENSIONS.iter().filter(|wanted| flags.contains(*wanted));
        Self {
            processor: format!("{name}{kind}"),
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

    const ZEN_3: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t: 1\n\
        model name\t: AMD EPYC 7763\nflags\t\t: fpu aes pclmulqdq avx avx2 vaes vpclmulqdq\n\
        processor\t: 1\nmodel name\t: another\n";

    fn with(flags: &str) -> Processor {
        Processor::parse(&format!("model name : x\nflags : {flags}\n"))
    }

    #[test]
    fn a_processor_is_named_with_its_kind_and_its_extensions() {
        let found = Processor::parse(ZEN_3);
        assert_eq!(found.processor, "AMD EPYC 7763 (cpu family 25, model 1)");
        let wanted = ["aes", "pclmulqdq", "avx", "avx2", "vaes", "vpclmulqdq"];
        assert_eq!(found.vector_extensions, wanted);
        let arm = "CPU implementer\t: 0x41\nCPU part\t: 0xd40\nFeatures\t: fp aes pmull sve2x\n";
        let arm = Processor::parse(arm);
        assert_eq!(arm.processor, "0x41 (CPU part 0xd40)");
        assert_eq!(arm.vector_extensions, ["aes", "pmull"]);
        assert_eq!(Processor::parse("").processor, "unknown");
        assert!(!Processor::read().unwrap().processor.is_empty());
    }

    #[test]
    fn the_kernel_follows_from_library_and_processor() {
        fn check(processor: &Processor, library: &str, kernel: &str) {
            assert_eq!(processor.aead_of(library), format!("{library}, {kernel}"));
        }
        let zen_3 = Processor::parse(ZEN_3);
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
