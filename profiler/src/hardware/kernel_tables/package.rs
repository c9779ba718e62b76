//! Finds the installed package of kernel times, without running Python, and lists what it has.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The PyPI package that has the kernel times.
pub const PACKAGE: &str = "aiconfigurator-core";

/// The version of the package with which the sums were compared with measured servers.
pub const TESTED: &str = "0.12.0";

/// The environment variable that names the folder of the package.
pub const VARIABLE: &str = "FORETOKEN_KERNELS";

/// The engines whose kernels are in the package, by their names in its folders.
pub const ENGINES: [&str; 3] = ["vllm", "sglang", "trtllm"];

/// A GPU preset, and the name of the package's folder for it. The package has no GH200; an H100 is most like it.
pub const SYSTEMS: [(&str, &str); 12] = [
    ("a100-80g", "a100_sxm"),
    ("a30", "a30"),
    ("b200", "b200_sxm"),
    ("b300", "b300_sxm"),
    ("gb200", "gb200"),
    ("gh200", "h100_sxm"),
    ("h100", "h100_sxm"),
    ("h100-pcie", "h100_pcie"),
    ("h200", "h200_sxm"),
    ("l4", "l4"),
    ("l40s", "l40s"),
    ("rtx-pro-6000", "rtx_pro_6000_server"),
];

/// The tables without which no pass can be summed: family and table.
pub const NEEDED: [(&str, &str); 3] =
    [("gemm", "gemm"), ("attention", "generation_attention"), ("attention", "context_attention")];

/// The package of kernel times in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The folder whose subfolder `data` has the tables.
    pub systems: PathBuf,
    /// The version of the package; `None` if the folder does not say it.
    pub version: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableFile {
    /// The kind of kernels, a folder: `gemm`, `attention`, `moe`, `comm` …
    pub family: String,
    /// The engine, or `nccl`.
    pub engine: String,
    pub version: String,
    /// The name of the table, without `_perf.parquet`.
    pub table: String,
    pub path: PathBuf,
}

impl Package {
    /// Finds the package: in the folder `given`, in that of the variable `FORETOKEN_KERNELS`, or installed for the
    /// Python of an active environment, of the PATH, or of the user.
    pub fn find(given: Option<&str>) -> Result<Package, String> {
        let variable = env::var(VARIABLE).ok().filter(|folder| !folder.is_empty());
        let named = given.map(str::to_owned).or(variable);
        if let Some(folder) = named {
            return Package::within(Path::new(&folder)).ok_or_else(|| {
                format!(
                    "{folder} has no kernel times: name the folder of the unpacked package {PACKAGE}, its \
                     aiconfigurator_core, or its systems"
                )
            });
        }
        let places = site_packages();
        places.iter().find_map(|place| Package::within(place)).ok_or_else(|| {
            let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
            let looked = if looked.is_empty() { "no site-packages".to_owned() } else { looked.join(", ") };
            format!(
                "the package {PACKAGE} is not installed (looked in {looked}): pip install {PACKAGE}=={TESTED}, or name \
                 the folder of its unpacked wheel with `package` or the variable {VARIABLE}"
            )
        })
    }

    /// The package in `folder`: site-packages or an unpacked wheel, `aiconfigurator_core`, or `systems`.
    pub fn within(folder: &Path) -> Option<Package> {
        let inner = "aiconfigurator_core";
        let systems = [folder.join(inner).join("systems"), folder.join("systems"), folder.to_owned()]
            .into_iter()
            .find(|systems| {
                let data = systems.join("data");
                data.is_dir() && names(&data).iter().any(|system| data.join(system).join("gemm").is_dir())
            })?;
        let around = systems.parent().and_then(Path::parent).unwrap_or(folder);
        let prefix = format!("{inner}-");
        let version = names(around)
            .into_iter()
            .find_map(|name| Some(name.strip_prefix(&prefix)?.strip_suffix(".dist-info")?.to_owned()));
        Some(Package { systems, version })
    }

    /// The name and version of the package, and a word if it is not the version that was tested.
    pub fn title(&self) -> String {
        match self.version.as_deref() {
            Some(TESTED) => format!("{PACKAGE} {TESTED}"),
            Some(other) => format!("{PACKAGE} {other} (tested with {TESTED})"),
            None => format!("{PACKAGE} of an unknown version (tested with {TESTED})"),
        }
    }

    pub fn systems(&self) -> Vec<String> {
        names(&self.systems.join("data"))
    }

    pub fn tables(&self, system: &str) -> Vec<TableFile> {
        let top = self.systems.join("data").join(system);
        let mut found = Vec::new();
        for family in names(&top) {
            for engine in names(&top.join(&family)) {
                for version in names(&top.join(&family).join(&engine)) {
                    let folder = top.join(&family).join(&engine).join(&version);
                    for file in names(&folder) {
                        if let Some(table) = file.strip_suffix("_perf.parquet") {
                            found.push(TableFile {
                                family: family.clone(),
                                engine: engine.clone(),
                                version: version.clone(),
                                table: table.to_owned(),
                                path: folder.join(&file),
                            });
                        }
                    }
                }
            }
        }
        found
    }

    /// The versions of each engine that have tables of a system.
    pub fn versions(&self, system: &str) -> BTreeMap<String, Vec<String>> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for table in self.tables(system) {
            let versions = found.entry(table.engine).or_default();
            if !versions.contains(&table.version) {
                versions.push(table.version);
            }
        }
        found.values_mut().for_each(|versions| versions.sort_by_key(|version| order(version)));
        found
    }
}

/// A version as numbers, in which `1.3.0rc20` is above `1.3.0rc5`.
pub(super) fn order(version: &str) -> Vec<u64> {
    let digits = version.split(|c: char| !c.is_ascii_digit());
    digits.filter(|part| !part.is_empty()).map(|part| part.parse().unwrap_or(0)).collect()
}

/// The names in a folder, sorted; none if it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The folders `site-packages` of the active environment, of the Pythons on the PATH, and of the user.
fn site_packages() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(|name| env::var_os(name).map(PathBuf::from)).collect();
    for folder in env::var_os("PATH").iter().flat_map(env::split_paths) {
        let python = ["python3", "python", "python.exe"].into_iter().map(|name| folder.join(name)).find(|p| p.exists());
        // `bin/python3` in an environment is a link to another installation, whose packages are not the environment's.
        roots.extend(python.and_then(|_| folder.parent().map(Path::to_owned)));
    }
    roots.extend(env::home_dir().map(|home| home.join(".local")));
    let mut found: Vec<PathBuf> = Vec::new();
    for root in roots {
        let windows = root.join("Lib").join("site-packages");
        let mut places = vec![windows];
        for lib in ["lib", "lib64"].map(|lib| root.join(lib)) {
            for python in names(&lib).into_iter().filter(|name| name.starts_with("python3")) {
                places.extend(["site-packages", "dist-packages"].map(|name| lib.join(&python).join(name)));
            }
        }
        found.extend(places.into_iter().filter(|place| place.is_dir()));
    }
    let mut unique: Vec<PathBuf> = Vec::new();
    for place in found {
        if !unique.contains(&place) {
            unique.push(place);
        }
    }
    unique
}
