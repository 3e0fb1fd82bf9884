//! The processor of this machine: the fastest library depends on it.

use std::io;

/// A processor, as the kernel tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// Its name, with family and model, since a virtual machine may hide the name; empty if the
    /// kernel tells neither.
    pub name: String,
    /// Its abilities beyond the least, in the kernel's words: `aes`, `vaes`, `sve2`.
    pub flags: Vec<String>,
}

impl Processor {
    /// This machine's.
    pub fn read() -> io::Result<Self> {
        std::fs::read_to_string("/proc/cpuinfo").map(|text| Self::parse(&text))
    }

    /// The first that is listed: of x86-64, or of arm64, which tells numbers for names.
    pub fn parse(cpuinfo: &str) -> Self {
        let field = |name: &str| {
            let named = |line: &str| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            };
            cpuinfo.lines().find_map(named)
        };
        let name = field("model name").or_else(|| field("CPU implementer")).unwrap_or_default();
        let kind = ["cpu family", "model", "CPU part"];
        let kind = kind.iter().filter_map(|key| Some(format!("{key} {}", field(key)?)));
        let kind: Vec<String> = kind.collect();
        let kind = if kind.is_empty() { String::new() } else { format!(" ({})", kind.join(", ")) };
        let flags = field("flags").or_else(|| field("Features")).unwrap_or_default();
        Self {
            name: format!("{name}{kind}").trim_start().to_owned(),
            flags: flags.split_whitespace().map(ToOwned::to_owned).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_named_with_its_kind_and_its_flags() {
        fn check(cpuinfo: &str, name: &str, flags: &[&str]) {
            let found = Processor::parse(cpuinfo);
            assert_eq!(found.name, name);
            assert_eq!(found.flags, flags);
        }
        let zen_3 = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t: 1\n\
            model name\t: AMD EPYC 7763\nflags\t\t: fpu aes vaes\n\
            processor\t: 1\nmodel name\t: another\n";
        check(zen_3, "AMD EPYC 7763 (cpu family 25, model 1)", &["fpu", "aes", "vaes"]);
        let arm = "CPU implementer\t: 0x41\nCPU part\t: 0xd40\nFeatures\t: fp aes pmull sve2\n";
        check(arm, "0x41 (CPU part 0xd40)", &["fp", "aes", "pmull", "sve2"]);
        check("cpu family : 6\n", "(cpu family 6)", &[]);
        check("", "", &[]);
        assert!(!Processor::read().unwrap().name.is_empty());
    }
}
