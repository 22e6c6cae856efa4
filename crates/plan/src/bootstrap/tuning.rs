//! What annotations of a pool or a machine change of its kubelets. MetaKube: `v1.kubelet-config..`.

use super::{Error, KubeletSettings};
use drover_api::labels;
use std::{collections::BTreeMap, str::FromStr};

const PAIRS: &str = "resources such as cpu=200m,memory=1Gi";
const SIGNALS: &str = "signals such as memory.available<100Mi,nodefs.available<10%";
const NUMBER: &str = "a whole number from 1 up";
const PERCENT: &str = "a percentage from 0 to 100, without the sign";
const SIZE: &str = "a size such as 100Mi";
const AGE: &str = "a duration such as 24h";
const KEYS: &str = "one of KubeReserved, SystemReserved, EvictionHard, MaxPods, ContainerLogMaxSize, \
                    ContainerLogMaxFiles, ImageGCHighThresholdPercent, ImageGCLowThresholdPercent, \
                    ImageMinimumGCAge, ImageMaximumGCAge after the slash";

impl KubeletSettings {
    /// These settings with what annotations say; other annotations are not looked at. Resources and signals are
    /// added to those that are there.
    ///
    /// # Errors
    /// [`Error::KubeletAnnotation`] for a key nobody knows or a value that a kubelet would not start with.
    pub fn tuned(mut self, annotations: &BTreeMap<String, String>) -> Result<Self, Error> {
        for (key, value) in annotations {
            if let Some(name) = key.strip_prefix(labels::KUBELET_CONFIG) {
                self.tune(name, value.trim()).map_err(|way_out| Error::KubeletAnnotation {
                    key: key.clone(),
                    value: value.clone(),
                    way_out,
                })?;
            }
        }
        Ok(self)
    }

    fn tune(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "KubeReserved" => self.kube_reserved.extend(pairs(value, '=', PAIRS)?),
            "SystemReserved" => self.system_reserved.extend(pairs(value, '=', PAIRS)?),
            "EvictionHard" => self.eviction_hard.extend(pairs(value, '<', SIGNALS)?),
            "MaxPods" => self.max_pods = Some(number(value)?),
            "ContainerLogMaxSize" if is_quantity(value) => {
                self.container_log_max_size = value.to_owned();
            }
            "ContainerLogMaxSize" => return Err(SIZE),
            "ContainerLogMaxFiles" => self.container_log_max_files = number(value)?,
            "ImageGCHighThresholdPercent" => {
                self.image_gc_high_threshold_percent = Some(percent(value)?);
            }
            "ImageGCLowThresholdPercent" => {
                self.image_gc_low_threshold_percent = Some(percent(value)?);
            }
            "ImageMinimumGCAge" => self.image_minimum_gc_age = Some(read(value, AGE)?),
            "ImageMaximumGCAge" => self.image_maximum_gc_age = Some(read(value, AGE)?),
            _ => return Err(KEYS),
        }
        Ok(())
    }
}

fn read<T: FromStr>(value: &str, way_out: &'static str) -> Result<T, &'static str> {
    value.parse().map_err(|_| way_out)
}

fn number(value: &str) -> Result<u32, &'static str> {
    read(value, NUMBER).and_then(|number| if number > 0 { Ok(number) } else { Err(NUMBER) })
}

fn percent(value: &str) -> Result<u32, &'static str> {
    read(value, PERCENT).and_then(|number| if number <= 100 { Ok(number) } else { Err(PERCENT) })
}

fn pairs(
    value: &str,
    between: char,
    way_out: &'static str,
) -> Result<BTreeMap<String, String>, &'static str> {
    let pair = |text: &str| {
        let (key, amount) = text.split_once(between)?;
        let (key, amount) = (key.trim(), amount.trim());
        let is_key = !key.is_empty()
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
        let is_share = between == '<' && amount.strip_suffix('%').is_some_and(is_quantity);
        (is_key && (is_share || is_quantity(amount))).then(|| (key.to_owned(), amount.to_owned()))
    };
    value.split(',').map(|text| pair(text).ok_or(way_out)).collect()
}

/// Kubernetes: a number, perhaps with a fraction, and perhaps a suffix.
fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 15] =
        ["", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "u"];
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    number.parse::<f64>().is_ok() && SUFFIXES.contains(&suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned(pairs: &[(&str, &str)]) -> Result<KubeletSettings, Error> {
        let named =
            pairs.iter().map(|(key, value)| (format!("{}{key}", labels::KUBELET_CONFIG), value));
        KubeletSettings::default()
            .tuned(&named.map(|(key, value)| (key, (*value).to_owned())).collect())
    }

    #[test]
    fn a_pool_tunes_its_kubelets_by_metakubes_annotations() {
        let settings = tuned(&[
            ("KubeReserved", "cpu=1, memory=1.5Gi"),
            ("SystemReserved", "ephemeral-storage=2Gi"),
            ("EvictionHard", "memory.available<5%,pid.available<10%"),
            ("MaxPods", "200"),
            ("ContainerLogMaxSize", "50Mi"),
            ("ContainerLogMaxFiles", "3"),
            ("ImageGCHighThresholdPercent", "70"),
            ("ImageGCLowThresholdPercent", "60"),
            ("ImageMinimumGCAge", "5m"),
            ("ImageMaximumGCAge", "168h"),
        ])
        .unwrap();
        assert_eq!(settings.kube_reserved["cpu"], "1");
        assert_eq!(settings.kube_reserved["memory"], "1.5Gi");
        assert_eq!(settings.kube_reserved["ephemeral-storage"], "1Gi", "the default stays");
        assert_eq!(settings.system_reserved["ephemeral-storage"], "2Gi");
        assert_eq!(settings.eviction_hard["memory.available"], "5%");
        assert_eq!(settings.eviction_hard["nodefs.available"], "10%", "the default stays");
        assert_eq!((settings.max_pods, settings.container_log_max_files), (Some(200), 3));
        assert_eq!(settings.container_log_max_size, "50Mi");
        assert_eq!(settings.image_gc_high_threshold_percent, Some(70));
        assert_eq!(settings.image_gc_low_threshold_percent, Some(60));
        assert_eq!(settings.image_minimum_gc_age.unwrap().to_string(), "5m");
        assert_eq!(settings.image_maximum_gc_age.unwrap().to_string(), "168h");
    }

    #[test]
    fn what_no_kubelet_starts_with_is_refused_by_name() {
        for (key, value) in [
            ("KubeReserved", "cpu"),
            ("KubeReserved", "cpu=lots"),
            ("KubeReserved", "cpu=5%"),
            ("EvictionHard", "memory.available=5%"),
            ("MaxPods", "0"),
            ("ContainerLogMaxSize", "big"),
            ("ImageGCHighThresholdPercent", "101"),
            ("ImageMaximumGCAge", "a week"),
            ("MaxPod", "5"),
        ] {
            let error = tuned(&[(key, value)]).unwrap_err().to_string();
            let annotation =
                format!("{}{key}: {value:?} cannot be used; give ", labels::KUBELET_CONFIG);
            assert!(error.contains(&annotation), "{error}");
        }
    }
}
