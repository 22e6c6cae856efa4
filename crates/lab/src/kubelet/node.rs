//! What a kubelet says of its node: the Node, its status and its Lease.

use super::Hardware;
use super::boot::Join;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Kubernetes: a Lease of a node holds this long without being renewed, in seconds.
const LEASE_SECONDS: u32 = 40;
/// Disk of a node that pods may use, in KiB.
const DISK_KIB: u64 = 20 << 20;

/// A time as `status` holds it: seconds.
pub fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time as a Lease holds it: microseconds.
fn microseconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The Node that a kubelet creates.
pub fn object(join: &Join, hardware: &Hardware, now: Timestamp) -> Value {
    let mut labels = json!({
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": join.node_name,
        "kubernetes.io/os": "linux",
    });
    for (key, value) in &join.labels {
        labels[key] = value.as_str().into();
    }
    let mut taints: Vec<Value> = Vec::new();
    if join.cloud_external {
        taints.push(json!({
            "key": "node.cloudprovider.kubernetes.io/uninitialized",
            "value": "true",
            "effect": "NoSchedule",
        }));
    }
    for taint in &join.taints {
        let mut object = json!({"key": taint.key, "effect": taint.effect});
        if !taint.value.is_empty() {
            object["value"] = taint.value.as_str().into();
        }
        taints.push(object);
    }
    let mut annotations = json!({
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    });
    if let Some(address) = join.node_ip {
        annotations["alpha.kubernetes.io/provided-node-ip"] = address.to_string().into();
    }
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": join.node_name, "labels": labels, "annotations": annotations},
        "spec": {},
        "status": status(join, hardware, hardware.network, now),
    });
    if !taints.is_empty() {
        node["spec"]["taints"] = taints.into();
    }
    node
}

/// The whole status, as a kubelet reports it after its start.
pub fn status(join: &Join, hardware: &Hardware, ready: bool, now: Timestamp) -> Value {
    let reserved_cpu: u64 = join.reserved_cpu.iter().map(|text| millis(text)).sum();
    let reserved_memory: u64 = join.reserved_memory.iter().map(|text| kibibytes(text)).sum();
    let memory = hardware.memory_mib * 1024;
    // Kubernetes: evictionHard memory.available is 100Mi unless configured.
    let usable = memory.saturating_sub(reserved_memory + 100 * 1024);
    let cpu = (hardware.cpus * 1000).saturating_sub(reserved_cpu);
    let mut status = json!({
        "capacity": {
            "cpu": hardware.cpus.to_string(),
            "ephemeral-storage": format!("{DISK_KIB}Ki"),
            "hugepages-2Mi": "0",
            "memory": format!("{memory}Ki"),
            "pods": join.max_pods.to_string(),
        },
        "allocatable": {
            "cpu": if cpu.is_multiple_of(1000) { (cpu / 1000).to_string() } else { format!("{cpu}m") },
            "ephemeral-storage": format!("{}Ki", DISK_KIB / 10 * 9),
            "hugepages-2Mi": "0",
            "memory": format!("{usable}Ki"),
            "pods": join.max_pods.to_string(),
        },
        "conditions": conditions(ready, now),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": hardware.boot_id,
            "containerRuntimeVersion": "containerd://1.7.24",
            "kernelVersion": "6.8.0-51-generic",
            "kubeProxyVersion": "",
            "kubeletVersion": join.version,
            "machineID": hardware.server.replace('-', ""),
            "operatingSystem": "linux",
            "osImage": join.os_image,
            "systemUUID": hardware.server,
        },
    });
    let own = addresses(join, hardware);
    if !own.is_empty() {
        status["addresses"] = own.into();
    }
    status
}

/// Without a cloud controller manager the kubelet tells its addresses itself.
fn addresses(join: &Join, hardware: &Hardware) -> Vec<Value> {
    if join.cloud_external && join.node_ip.is_none() {
        return Vec::new();
    }
    let internal = join.node_ip.or_else(|| hardware.addresses.first().copied());
    internal
        .map(|address| json!({"type": "InternalIP", "address": address.to_string()}))
        .into_iter()
        .chain([json!({"type": "Hostname", "address": join.node_name})])
        .collect()
}

/// The four conditions of a kubelet, all as of now.
fn conditions(ready: bool, now: Timestamp) -> Vec<Value> {
    let healthy = [
        ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ];
    let now = seconds(now);
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let mut all: Vec<Value> = healthy
        .iter()
        .map(|(kind, reason, message)| condition(kind, "False", reason, message))
        .collect();
    all.push(if ready {
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")
    } else {
        condition(
            "Ready",
            "False",
            "KubeletNotReady",
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
             message:Network plugin returns error: cni plugin not initialized",
        )
    });
    all
}

/// Which conditions a report says have changed.
#[derive(Clone, Copy, PartialEq)]
pub enum Changed {
    /// None: a heartbeat.
    Nothing,
    /// Whether the node is Ready.
    Ready,
    /// All: somebody else wrote them meanwhile.
    All,
}

/// A status patch with the conditions; their transition times move only with what changed.
pub fn report(ready: bool, changed: Changed, now: Timestamp) -> Value {
    let mut all = conditions(ready, now);
    for condition in &mut all {
        let moved = match changed {
            Changed::Nothing => false,
            Changed::Ready => condition["type"] == "Ready",
            Changed::All => true,
        };
        if let Some(condition) = condition.as_object_mut().filter(|_| !moved) {
            condition.remove("lastTransitionTime");
        }
    }
    json!({"status": {"conditions": all}})
}

/// Whether somebody wrote that nothing is known of this node.
pub fn is_unknown(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "Unknown")
}

/// The Lease of a Node with this uid.
pub fn lease(name: &str, uid: &str, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": "kube-node-lease",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
            ],
        },
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": microseconds(now),
        },
    })
}

/// Says in a Lease that its holder is alive.
pub fn renew(lease: &mut Value, now: Timestamp) {
    lease["spec"]["renewTime"] = microseconds(now).into();
}

/// The addresses of a Node that a serving certificate must name: DNS names and IP addresses.
pub fn names(node: &Value) -> (Vec<String>, Vec<IpAddr>) {
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    for entry in node["status"]["addresses"].as_array().into_iter().flatten() {
        let address = entry["address"].as_str().unwrap_or_default();
        match address.parse() {
            Ok(ip) => addresses.push(ip),
            Err(_) if !address.is_empty() => names.push(address.to_owned()),
            Err(_) => {}
        }
    }
    names.sort();
    names.dedup();
    addresses.sort();
    addresses.dedup();
    (names, addresses)
}

/// CPU as `200m` or `1`, in thousandths.
fn millis(text: &str) -> u64 {
    match text.strip_suffix('m') {
        Some(millis) => millis.parse().unwrap_or_default(),
        None => text.parse::<u64>().unwrap_or_default() * 1000,
    }
}

/// Memory as `200Mi`, `1Gi` or bytes, in KiB.
fn kibibytes(text: &str) -> u64 {
    let units = [("Ki", 1), ("Mi", 1 << 10), ("Gi", 1 << 20)];
    let unit = units.iter().find_map(|(unit, factor)| {
        text.strip_suffix(unit).and_then(|number| number.parse::<u64>().ok()).map(|n| n * factor)
    });
    unit.unwrap_or_else(|| text.parse::<u64>().unwrap_or_default() / 1024)
}
