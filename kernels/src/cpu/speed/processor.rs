//! Facts about the present processor: its name, its caches, and how many multiply-adds it starts per cycle.

use crate::cpu::level::Level;
use std::fs::read_to_string;

/// What Linux reports about a processor. On other systems, each field is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// The name under which the processor is sold.
    pub name: Option<String>,
    /// Vendor, family and model number, which identify the processor's design.
    pub design: Option<(String, u32, u32)>,
    /// Bytes of the data caches of a core, the nearest first. Cores may share the last cache.
    pub caches: Vec<usize>,
}

/// Reads the facts about the present processor.
pub fn processor() -> Processor {
    let text = read_to_string("/proc/cpuinfo").unwrap_or_default();
    Processor { caches: caches(), ..described(&text) }
}

/// Parses the entry of the first core in `text`, the contents of `/proc/cpuinfo`.
fn described(text: &str) -> Processor {
    let value = |key: &str| {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|k| k.trim() == key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let number = |key: &str| value(key)?.parse().ok();
    let design = value("vendor_id").zip(number("cpu family")).zip(number("model"));
    Processor {
        name: value("model name"),
        design: design.map(|((vendor, family), model)| (vendor, family, model)),
        caches: Vec::new(),
    }
}

fn caches() -> Vec<usize> {
    let mut found: Vec<(u32, usize)> = Vec::new();
    for index in 0..8 {
        let about = |what: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
            read_to_string(path).ok().map(|text| text.trim().to_owned())
        };
        if about("type").is_some_and(|kind| kind != "Instruction")
            && let (Some(Ok(level)), Some(size)) = (about("level").map(|l| l.parse()), about("size"))
            && let Some(bytes) = bytes(&size)
        {
            found.push((level, bytes));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Parses a size such as `32K` or `1M` to bytes.
fn bytes(size: &str) -> Option<usize> {
    let unit = match size.chars().last()? {
        'K' => 1 << 10,
        'M' => 1 << 20,
        _ => return size.parse().ok(),
    };
    Some(size[..size.len() - 1].parse::<usize>().ok()? * unit)
}

impl Processor {
    /// Number of multiply-add instructions of the level `level` that a core starts per cycle; `None` for an unknown
    /// design and for plain code. Sources: Intel's and AMD's software optimization manuals; Fog, "The microarchitecture
    /// of Intel, AMD and VIA CPUs".
    pub fn fma_units(&self, level: Level) -> Option<u32> {
        let (vendor, family, model) = self.design.as_ref()?;
        match (vendor.as_str(), family, level.width()?) {
            // AMD Zen (model below 0x30) splits a 256-bit instruction into two halves, so it starts one such
            // instruction per cycle. Zen 2 starts two per cycle.
            ("AuthenticAMD", 0x17, 8) => Some(if *model < 0x30 { 1 } else { 2 }),
            // AMD Zen 3 and later have two 256-bit multiply-add units. Zen 4 uses both units for one 512-bit
            // instruction.
            ("AuthenticAMD", 0x19.., 8) => Some(2),
            ("AuthenticAMD", 0x19, 16) => Some(1),
            // AMD Zen 5 has two 512-bit multiply-add units in servers and desktops. Some laptops have 256-bit units;
            // for laptops the result is `None`.
            ("AuthenticAMD", 0x1A, 16) => matches!(model, 0x00..=0x1F | 0x40..=0x4F).then_some(2),
            // Intel Haswell and all later designs have two 256-bit multiply-add units. The efficiency cores of hybrid
            // processors are not distinguished from their other cores.
            ("GenuineIntel", 6, 8) => Some(2),
            // Intel's servers (Skylake to Cascade Lake, Ice Lake, Sapphire, Emerald and Granite Rapids) have two
            // 512-bit multiply-add units. Some of the smaller models have only one unit; they also count as two,
            // because the model number does not distinguish them.
            ("GenuineIntel", 6, 16) => match model {
                0x55 | 0x6A | 0x6C | 0x8F | 0xCF | 0xAD | 0xAE => Some(2),
                // Intel's laptops and desktops (Ice Lake, Tiger Lake and Rocket Lake) have one 512-bit multiply-add
                // unit.
                0x7D | 0x7E | 0x8C | 0x8D | 0xA7 => Some(1),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n\n\
                        processor\t: 1\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 99\n";

    #[test]
    fn the_first_core_is_described() {
        let found = described(TEXT);
        assert_eq!(found.name.as_deref(), Some("AMD EPYC"));
        assert_eq!(found.design, Some(("AuthenticAMD".into(), 25, 1)));
        assert_eq!(described("Processor : something else\n"), Processor::default());
        assert_eq!(
            (bytes("32K"), bytes("32M"), bytes("77"), bytes("x")),
            (Some(32 << 10), Some(32 << 20), Some(77), None)
        );
    }

    #[test]
    fn designs_that_are_not_known_have_no_units() {
        let processor = |vendor: &str, family, model| Processor {
            design: Some((vendor.into(), family, model)),
            ..Processor::default()
        };
        for level in Level::all() {
            for (family, of_512) in [(25, 1), (26, 2)] {
                let expected = level.width().map(|width| if width == 16 { of_512 } else { 2 });
                assert_eq!(processor("AuthenticAMD", family, 2).fma_units(level), expected, "{level:?}");
            }
            assert_eq!(processor("CentaurHauls", 7, 1).fma_units(level), None);
            assert_eq!(Processor::default().fma_units(level), None);
        }
    }
}
