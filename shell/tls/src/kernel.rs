//! The libraries that can seal, the ciphers, and which seals under which.

/// A library that can seal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernel {
    /// Out of place; wide instructions where the processor has AVX-512.
    #[default]
    AwsLc,
    /// After a copy; wide instructions with AVX2 too.
    Ring,
}

impl Kernel {
    /// All candidates, the one that is preferred where they are as fast first.
    pub const ALL: [Self; 2] = [Self::AwsLc, Self::Ring];

    /// As in the configuration and the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::AwsLc => "aws-lc",
            Self::Ring => "ring",
        }
    }
}

impl std::fmt::Display for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A cipher of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    Aes128,
    Aes256,
    Chacha20,
}

impl Cipher {
    /// Those between whose kernels is chosen. ChaCha20 is for players without AES in their
    /// processor, which are few; aws-lc seals it.
    pub const CHOSEN: [Self; 2] = [Self::Aes128, Self::Aes256];

    /// As in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128 => "aes-128-gcm",
            Self::Aes256 => "aes-256-gcm",
            Self::Chacha20 => "chacha20-poly1305",
        }
    }
}

/// The operator's choice of a library to seal with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    #[default]
    Auto,
    Only(Kernel),
}

/// No such kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" seals nothing here: give \"auto\" for the fastest, \"aws-lc\" or \"ring\"")]
pub struct WantedError(String);

impl std::str::FromStr for Wanted {
    type Err = WantedError;

    fn from_str(text: &str) -> Result<Self, WantedError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let kernel = Kernel::ALL.into_iter().find(|kernel| kernel.name() == text);
        kernel.map(Self::Only).ok_or_else(|| WantedError(text.to_owned()))
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Only(kernel) => kernel.fmt(f),
        }
    }
}

/// The library that seals under each cipher; aws-lc unless somebody chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernels {
    pub aes_128: Kernel,
    pub aes_256: Kernel,
}

impl Kernels {
    /// The library that seals under this cipher.
    pub fn of(self, cipher: Cipher) -> Kernel {
        match cipher {
            Cipher::Aes128 => self.aes_128,
            Cipher::Aes256 => self.aes_256,
            Cipher::Chacha20 => Kernel::AwsLc,
        }
    }
}
