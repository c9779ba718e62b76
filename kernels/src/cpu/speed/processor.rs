//! Facts about the present processor: its name, its design and its caches.

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
}
