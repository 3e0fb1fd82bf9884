//! What makes one drive unlike another, and the four drives that are simulated.

use model::units::{Bytes, Nanos};

use crate::ftl::Shape;

/// The way between host and drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// One direction at a time, so reads and writes share it: SATA. Bytes per second.
    HalfDuplex(Bytes),
    /// Both at once: PCIe. Bytes per second.
    FullDuplex {
        /// To the host.
        read: Bytes,
        /// From the host.
        write: Bytes,
    },
}

/// Which operation a die does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they came.
    Fifo,
    /// Reads before programs, moves and erases.
    ReadFirst,
    /// Also, a read interrupts them; each interruption costs `cost`, and one operation is put off
    /// by at most `longest`.
    Suspend {
        /// Until the die listens, and again until it goes on.
        cost: Nanos,
        /// Then it is finished first.
        longest: Nanos,
    },
}

/// When blocks are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collect {
    /// From `low` free blocks per die until there are `high`.
    Hysteresis {
        /// Begin.
        low: u32,
        /// End.
        high: u32,
    },
    /// Below `high` free blocks, as many moves per page of the host as the victim costs.
    Paced {
        /// Begin.
        high: u32,
    },
}

/// How a trim is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// The drive finishes everything, then does nothing else for so long.
    Serial(Nanos),
    /// A command like others.
    Queued(Nanos),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Sizes of the arrays; fewer blocks than in life, but not fewer dies.
    pub shape: Shape,
    /// What is programmed at once on one die, all planes.
    pub page: Bytes,
    /// Dies take channels in turn.
    pub channels: u32,
    /// Bytes per second of one channel.
    pub channel_rate: Bytes,
    /// To the host.
    pub link: Link,
    /// Array to register.
    pub read: Nanos,
    /// Register to array.
    pub program: Nanos,
    pub erase: Nanos,
    /// Each of these three is longer or shorter by up to so many thousandths.
    pub jitter_permille: u32,
    /// Firmware and protocol, per command.
    pub overhead: Nanos,
    /// Pages of the write buffer.
    pub buffer_pages: u32,
    /// A flush has nothing to do: the buffer outlives a power cut.
    pub power_safe: bool,
    /// Commands that the drive takes at once.
    pub depth: u32,
    /// Which operation is next on a die.
    pub order: Order,
    pub collect: Collect,
    /// Pages moved before anything else has a turn on the die.
    pub quantum: u32,
    /// Idle for so long, it collects unasked.
    pub idle: Nanos,
    pub trim: Trim,
    /// Reads of a block after which it is moved, unasked.
    pub disturb_reads: u32,
}

/// The drives of the study, by what they stand for. Sizes are estimates that meet published
/// bandwidths; none is a vendor's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Consumer, about 2013: no power-loss protection, dies in order of arrival.
    SataTlc,
    /// Datacentre, about 2014: more spare space, reads first.
    SataDc,
    /// Datacentre, about 2021: suspends programs and erases for reads.
    NvmeTlc,
    /// Of many bits per cell: slow programs, many dies.
    NvmeQlc,
}

impl Class {
    pub const ALL: [Self; 4] = [Self::SataTlc, Self::SataDc, Self::NvmeTlc, Self::NvmeQlc];

    /// As on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::SataTlc => "sata-tlc",
            Self::SataDc => "sata-dc",
            Self::NvmeTlc => "nvme-tlc",
            Self::NvmeQlc => "nvme-qlc",
        }
    }

    pub fn params(self) -> Params {
        match self {
            Self::SataTlc => sata_tlc(),
            Self::SataDc => Params {
                shape: Shape::with_spare(32, 48, 256, 280),
                power_safe: true,
                order: Order::ReadFirst,
                quantum: 4,
                idle: Nanos::millis(100),
                trim: Trim::Serial(Nanos(1_500_000)),
                ..sata_tlc()
            },
            Self::NvmeTlc => nvme_tlc(),
            Self::NvmeQlc => nvme_qlc(),
        }
    }
}

/// Bytes per second from decimal megabytes.
const fn mb(n: u64) -> Bytes {
    Bytes(n * 1_000_000)
}

fn sata_tlc() -> Params {
    Params {
        shape: Shape::with_spare(32, 104, 256, 90),
        page: Bytes::kib(32),
        channels: 8,
        channel_rate: mb(333),
        link: Link::HalfDuplex(mb(530)),
        read: Nanos(75_000),
        program: Nanos(1_300_000),
        erase: Nanos(3_800_000),
        jitter_permille: 100,
        overhead: Nanos(50_000),
        buffer_pages: 256,
        power_safe: false,
        depth: 32,
        order: Order::Fifo,
        collect: Collect::Hysteresis { low: 3, high: 5 },
        quantum: 16,
        idle: Nanos::millis(500),
        trim: Trim::Serial(Nanos::millis(3)),
        disturb_reads: 100_000,
    }
}

/// Blocks of 48 pages; in life 400 and more.
fn nvme_tlc() -> Params {
    Params {
        shape: Shape::with_spare(128, 80, 48, 120),
        page: Bytes::kib(48),
        channels: 8,
        channel_rate: mb(1_200),
        link: Link::FullDuplex { read: mb(6_800), write: mb(4_000) },
        read: Nanos(60_000),
        program: Nanos(1_400_000),
        erase: Nanos(5_000_000),
        jitter_permille: 100,
        overhead: Nanos(15_000),
        buffer_pages: 2_034,
        power_safe: true,
        depth: 256,
        order: Order::Suspend { cost: Nanos(30_000), longest: Nanos::millis(5) },
        collect: Collect::Paced { high: 4 },
        quantum: 1,
        idle: Nanos::millis(10),
        trim: Trim::Queued(Nanos(100_000)),
        disturb_reads: 100_000,
    }
}

/// Blocks of 24 pages; in life 600 and more.
fn nvme_qlc() -> Params {
    Params {
        shape: Shape::with_spare(256, 104, 24, 90),
        page: Bytes::kib(64),
        channels: 16,
        channel_rate: mb(1_200),
        link: Link::FullDuplex { read: mb(7_000), write: mb(3_500) },
        read: Nanos(90_000),
        program: Nanos::millis(5),
        erase: Nanos::millis(10),
        jitter_permille: 100,
        overhead: Nanos(15_000),
        buffer_pages: 3_906,
        power_safe: true,
        depth: 256,
        order: Order::Suspend { cost: Nanos(40_000), longest: Nanos::millis(10) },
        collect: Collect::Paced { high: 4 },
        quantum: 1,
        idle: Nanos::millis(50),
        trim: Trim::Queued(Nanos(200_000)),
        disturb_reads: 30_000,
    }
}
