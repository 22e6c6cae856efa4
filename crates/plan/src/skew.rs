//! Which kubelets go with an API server.

use semver::Version;

/// A kubelet that does not go with its API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// What is wrong with it, such as `newer than the API server`.
    pub why: &'static str,
    /// The oldest minor version that the API server allows.
    pub(crate) oldest: u64,
    /// One that goes: of the API server's own version.
    pub instead: String,
}

/// What is wrong with a kubelet of this version at this API server, both as in `v1.30.3`; `None` when it goes, or when
/// either is no version.
#[must_use]
pub fn misfit(kubelet: &str, server: &str) -> Option<Misfit> {
    let read = |text: &str| Version::parse(text.strip_prefix('v').unwrap_or(text)).ok();
    of(&read(kubelet)?, &read(server)?)
}

/// Kubernetes, version skew policy: a kubelet is never newer than its API server and at most three minor
/// versions older, two before 1.28.
pub(crate) fn of(kubelet: &Version, server: &Version) -> Option<Misfit> {
    let oldest = server.minor.saturating_sub(if server.minor < 28 { 2 } else { 3 });
    let minor = |version: &Version| (version.major, version.minor);
    let why = if minor(kubelet) > minor(server) {
        "newer than the API server"
    } else if minor(kubelet) < (server.major, oldest) {
        "too old for the API server"
    } else {
        return None;
    };
    let Version { major, minor, patch, .. } = server;
    Some(Misfit { why, oldest, instead: format!("{major}.{minor}.{patch}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kubernetes, version skew policy.
    #[test]
    fn a_kubelet_that_does_not_fit_is_told_with_one_that_does() {
        let instead = |kubelet, server| misfit(kubelet, server).map(|it| (it.why, it.instead));
        let (newer, too_old) = ("newer than the API server", "too old for the API server");
        for (kubelet, server, expected) in [
            ("1.30.3", "v1.33.0+drover-lab", None),
            ("v1.30.3", "1.30.0", None),
            ("1.30.3", "v1.36.3", Some((too_old, "1.36.3"))),
            ("1.30.3", "v1.34.2-eks-3ab1c2d", Some((too_old, "1.34.2"))),
            ("1.30.3", "v1.29.1-rc.1", Some((newer, "1.29.1"))),
            ("1.24.9", "v1.27.4", Some((too_old, "1.27.4"))),
            ("latest", "v1.36.3", None),
        ] {
            let expected = expected.map(|(why, version)| (why, version.to_owned()));
            assert_eq!(instead(kubelet, server), expected, "{kubelet} at {server}");
        }
    }
}
