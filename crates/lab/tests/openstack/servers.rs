//! The lives of servers, ports, volumes and floating IPs.

use crate::fixture::{Lab, text, told};
use base64::Engine as _;
use drover_lab::cloud::{Config, Power, Quotas};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_server_is_built_step_by_step_and_its_hypervisor_hears_of_it() {
    let lab = Lab::start().await;
    let mut power = lab.cloud.power();
    let user_data = b"#cloud-config\nhostname: \xff\n";
    let encoded = base64::engine::general_purpose::STANDARD.encode(user_data);
    let port = lab.port("one").await;
    let wish = json!({
        "user_data": encoded, "metadata": {"uid": "1"}, "networks": [{"port": port}],
        "availability_zone": "dbl2",
    });
    let id = lab.server("Node_1.x", wish).await;
    assert_eq!(
        lab.until(&id, "ACTIVE").await,
        ["BUILD scheduling", "BUILD -", "BUILD networking", "BUILD spawning", "ACTIVE -"]
    );
    let Some(Power::On(guest)) = power.recv().await else { panic!("no power") };
    assert_eq!(
        (guest.server, guest.name, guest.host_name),
        (id.clone(), "Node_1.x".into(), "node-1-x".into())
    );
    assert_eq!(
        (guest.user_data, guest.zone, guest.flavor),
        (user_data.to_vec(), "dbl2".into(), "m1.small".into())
    );
    let shown = lab.get(&format!("/network/v2.0/ports/{port}")).await.body["port"].take();
    let address: IpAddr = text(&shown["fixed_ips"][0]["ip_address"]).parse().unwrap();
    assert_eq!(guest.fixed, [address]);
    assert_eq!((&shown["device_id"], &shown["device_owner"]), (&json!(id), &json!("compute:dbl2")));
    lab.cloud.console(&id, "booted");
    let console = lab
        .post(&format!("/compute/v2.1/servers/{id}/action"), json!({"os-getConsoleOutput": {}}))
        .await;
    assert_eq!(console.body["output"], "booted");

    lab.delete(&format!("/compute/v2.1/servers/{id}")).await;
    assert_eq!(lab.until(&id, "404").await, ["ACTIVE deleting", "DELETED -", "404"]);
    assert_eq!(told(&mut power), ["gone"]);
    let shown = lab.get(&format!("/network/v2.0/ports/{port}")).await.body["port"].take();
    assert_eq!((&shown["device_id"], &shown["status"]), (&json!(""), &json!("DOWN")));
    assert_eq!(shown["fixed_ips"][0]["ip_address"], json!(address));
}

#[tokio::test(start_paused = true)]
async fn ports_that_nova_made_go_with_the_server() {
    let lab = Lab::start().await;
    let id = lab.server("a", json!({})).await;
    lab.until(&id, "ACTIVE").await;
    assert_eq!(lab.cloud.ledger().ports.len(), 1);
    lab.delete(&format!("/compute/v2.1/servers/{id}")).await;
    lab.until(&id, "404").await;
    assert!(lab.cloud.ledger().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_during_the_build_waits_for_its_end_and_one_right_after_the_202_does_not() {
    let lab = Lab::start().await;
    let mut power = lab.cloud.power();
    let early = lab.server("early", json!({})).await;
    lab.delete(&format!("/compute/v2.1/servers/{early}")).await;
    assert_eq!(lab.until(&early, "404").await, ["404"]);

    let late = lab.server("late", json!({})).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    lab.delete(&format!("/compute/v2.1/servers/{late}")).await;
    let seen = lab.until(&late, "404").await;
    assert_eq!(seen, ["BUILD deleting", "ACTIVE -", "DELETED -", "404"]);
    assert_eq!(told(&mut power), [""; 0], "it never ran");
    assert!(lab.cloud.ledger().is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_two_servers_with_one_port_the_second_fails_and_unbinds_it_from_the_first() {
    let lab = Lab::start().await;
    let port = lab.port("p").await;
    let first = lab.server("first", json!({"networks": [{"port": port}]})).await;
    let second = lab.server("second", json!({"networks": [{"port": port}]})).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (first, second) = (lab.show(&first).await, lab.show(&second).await);
    let (winner, loser) =
        if first["status"] == "ACTIVE" { (first, second) } else { (second, first) };
    assert_eq!((&winner["status"], &winner["addresses"]), (&json!("ACTIVE"), &json!({})));
    let said = text(&loser["fault"]["message"]);
    assert!(
        said.ends_with("aborted: Failed to allocate the network(s), not rescheduling."),
        "{said}"
    );
    let shown = lab.get(&format!("/network/v2.0/ports/{port}")).await.body;
    assert_eq!(shown["port"]["device_id"], "");

    // Bound for good, a third one is told at once.
    let third = lab.server("third", json!({"networks": [{"port": port}]})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let wish = lab.wish("fourth", json!({"networks": [{"port": port}]})).await;
    assert_eq!(lab.post("/compute/v2.1/servers", wish).await.status, 409);
    lab.until(&third, "ACTIVE").await;
}

async fn volume(lab: &Lab) -> String {
    let image = lab.id_of("/image/v2/images", "Flatcar Stable 3975.2.1").await;
    let body =
        json!({"volume": {"name": "v", "size": 5, "imageRef": image, "metadata": {"uid": "1"}}});
    let made = lab.post("/volume/v3/volumes", body).await;
    assert_eq!(made.status, 202, "{}", made.body);
    tokio::time::sleep(Duration::from_secs(5)).await;
    text(&made.body["volume"]["id"])
}

#[tokio::test(start_paused = true)]
async fn of_three_servers_with_one_boot_volume_one_is_made() {
    let lab = Lab::start().await;
    let volume = volume(&lab).await;
    let disk = json!([{"boot_index": 0, "uuid": volume, "source_type": "volume", "destination_type": "volume"}]);
    let mut wish = lab.wish("v", json!({"block_device_mapping_v2": disk})).await;
    wish["server"].as_object_mut().unwrap().remove("imageRef");
    let mut statuses = Vec::new();
    let mut id = String::new();
    for _ in 0..3 {
        let answer = lab.post("/compute/v2.1/servers", wish.clone()).await;
        statuses.push(answer.status);
        if answer.status == 202 {
            id = text(&answer.body["server"]["id"]);
        }
    }
    assert_eq!(statuses, [202, 400, 400]);
    lab.until(&id, "ACTIVE").await;
    assert_eq!(lab.show(&id).await["image"], "");
    let path = format!("/volume/v3/volumes/{volume}");
    let shown = lab.get(&path).await.body["volume"].take();
    assert_eq!(
        (&shown["status"], &shown["attachments"][0]["server_id"]),
        (&json!("in-use"), &json!(id))
    );
    assert_eq!(lab.delete(&path).await.status, 400);
    lab.delete(&format!("/compute/v2.1/servers/{id}")).await;
    lab.until(&id, "404").await;
    assert_eq!(lab.get(&path).await.body["volume"]["status"], "available");
    assert_eq!(lab.delete(&path).await.status, 202);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(lab.get(&path).await.status, 404);
    assert!(lab.cloud.ledger().is_empty());
}

#[tokio::test(start_paused = true)]
async fn floating_ips_outlive_their_port_and_lead_to_one_server_each() {
    let lab = Lab::start().await;
    let port = lab.port("p").await;
    let id = lab.server("s", json!({"networks": [{"port": port}]})).await;
    lab.until(&id, "ACTIVE").await;
    let external = lab.id_of("/network/v2.0/networks", "ext-net").await;
    let wish = json!({"floatingip": {"floating_network_id": external, "port_id": port, "description": "uid-1"}});
    let made = lab.post("/network/v2.0/floatingips", wish.clone()).await;
    assert_eq!((made.status, &made.body["floatingip"]["status"]), (201, &json!("DOWN")));
    assert_eq!(lab.post("/network/v2.0/floatingips", wish).await.status, 409);
    let address = text(&made.body["floatingip"]["floating_ip_address"]);
    assert_eq!(lab.show(&id).await["addresses"].to_string().matches(&address).count(), 0, "lags");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(lab.show(&id).await["addresses"].to_string().matches(&address).count(), 1);

    let path = format!("/network/v2.0/floatingips/{}", text(&made.body["floatingip"]["id"]));
    assert_eq!(lab.get(&path).await.body["floatingip"]["status"], "ACTIVE");
    assert_eq!(
        lab.delete(&format!("/network/v2.0/ports/{port}")).await.status,
        204,
        "in use or not"
    );
    let left = lab.get(&path).await.body["floatingip"].take();
    assert_eq!(
        (&left["port_id"], &left["status"], &left["router_id"]),
        (&Value::Null, &json!("DOWN"), &Value::Null)
    );
    assert_eq!(lab.delete(&path).await.status, 204);
}

#[tokio::test(start_paused = true)]
async fn groups_keep_servers_apart_as_strictly_as_they_say() {
    let lab = Lab::with(|config| config.hosts_per_zone = 1).await;
    let soft = lab.id_of("/compute/v2.1/os-server-groups", "metakube-mmxfcmgjkx").await;
    let body = json!({"server_group": {"name": "strict", "policy": "anti-affinity"}});
    let strict =
        text(&lab.post("/compute/v2.1/os-server-groups", body).await.body["server_group"]["id"]);
    let mut ends = Vec::new();
    for (group, count) in [(soft, 3), (strict, 3)] {
        let mut hosts = BTreeSet::new();
        for at in 0..count {
            let mut wish = lab.wish(&format!("s{at}"), json!({})).await;
            wish["os:scheduler_hints"] = json!({"group": group});
            let id = text(&lab.post("/compute/v2.1/servers", wish).await.body["server"]["id"]);
            tokio::time::sleep(Duration::from_secs(60)).await;
            let server = lab.show(&id).await;
            hosts.insert(text(&server["hostId"]));
            ends.push(text(&server["status"]));
            if server["status"] == "ERROR" {
                let said = text(&server["fault"]["message"]);
                assert_eq!(said, "No valid host was found. There are not enough hosts available.");
            }
        }
        hosts.remove("");
        assert_eq!(hosts.len(), 2, "two hosts, both used");
    }
    assert_eq!(ends, ["ACTIVE", "ACTIVE", "ACTIVE", "ACTIVE", "ACTIVE", "ERROR"]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_and_a_vanishing_show_without_anybody_having_asked() {
    let lab = Lab::start().await;
    let mut power = lab.cloud.power();
    let port = lab.port("p").await;
    let id = lab.server("s", json!({"networks": [{"port": port}]})).await;
    lab.until(&id, "ACTIVE").await;
    assert!(lab.cloud.crash(&id, false));
    let server = lab.show(&id).await;
    assert_eq!(
        (&server["status"], &server["OS-EXT-STS:power_state"]),
        (&json!("SHUTOFF"), &json!(4))
    );
    lab.post(&format!("/compute/v2.1/servers/{id}/action"), json!({"os-start": null})).await;
    lab.until(&id, "ACTIVE").await;
    assert!(lab.cloud.vanish(&id));
    assert!(!lab.cloud.vanish(&id));
    assert_eq!(lab.get(&format!("/compute/v2.1/servers/{id}")).await.status, 404);
    assert_eq!(told(&mut power), ["on s", "off", "on s", "gone"]);
    let books = lab.cloud.ledger();
    assert_eq!(
        (books.servers.len(), books.ports.len(), books.ports[0].owner.clone()),
        (0, 1, None)
    );
}

#[tokio::test(start_paused = true)]
async fn who_listens_late_hears_of_what_runs() {
    let lab = Lab::start().await;
    let id = lab.server("s", json!({})).await;
    lab.until(&id, "ACTIVE").await;
    assert_eq!(told(&mut lab.cloud.power()), ["on s"]);
}

#[tokio::test(start_paused = true)]
async fn lists_are_filtered_and_paged_to_the_end() {
    let lab = Lab::start().await;
    for at in 0..5 {
        lab.server(&format!("Node-{at}"), json!({"tags": ["cluster.x", format!("machine.{at}")]}))
            .await;
    }
    let names = async |query: &str| -> Vec<String> {
        let list = lab.get(&format!("/compute/v2.1/servers/detail?{query}")).await.body;
        list["servers"].as_array().unwrap().iter().map(|server| text(&server["name"])).collect()
    };
    assert_eq!(names("name=%5Enode-3%24").await, ["Node-3"], "a regex without case");
    assert_eq!(names("tags=CLUSTER.x,machine.4").await, ["Node-4"]);
    assert_eq!(names("tags=machine").await, [""; 0], "whole tags");
    assert_eq!(names("metadata=%7B%22a%22%3A%22b%22%7D").await.len(), 5, "ignored for members");
    assert_eq!(names("status=ACTIVE").await.len(), 0);

    let mut next = "/compute/v2.1/servers/detail?limit=2".to_owned();
    let (mut pages, mut seen) = (Vec::new(), BTreeSet::new());
    while !next.is_empty() {
        let page = lab.get(&next).await.body;
        let servers = page["servers"].as_array().unwrap().clone();
        pages.push(servers.len());
        seen.extend(servers.iter().map(|server| text(&server["name"])));
        next = text(&page["servers_links"][0]["href"]).replace("http://cloud.lab", "");
    }
    assert_eq!((pages, seen.len()), (vec![2, 2, 1], 5));
}

#[tokio::test(start_paused = true)]
async fn each_service_has_its_own_words_for_a_quota() {
    let lab = Lab::start().await;
    let quotas = Quotas { instances: 0, port: 2, floatingip: 0, volumes: 0, ..Quotas::default() };
    lab.cloud.set_quotas(quotas);
    lab.port("the last one").await;
    let (network, external) =
        (lab.network().await, lab.id_of("/network/v2.0/networks", "ext-net").await);
    let server = lab.wish("s", json!({"networks": "none"})).await;
    let asks = [
        ("/compute/v2.1/servers", server, 403),
        ("/network/v2.0/ports", json!({"port": {"network_id": network}}), 409),
        (
            "/network/v2.0/floatingips",
            json!({"floatingip": {"floating_network_id": external}}),
            409,
        ),
        ("/volume/v3/volumes", json!({"volume": {"size": 1}}), 413),
    ];
    for (path, body, status) in asks {
        let answer = lab.post(path, body).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert_eq!(
            answer.headers.get("retry-after").map(|value| value.as_bytes()),
            (status == 413).then_some(&b"0"[..])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_cloud() {
    let run = async |seed: u64| {
        let lab = Lab::with(|config: &mut Config| config.seed = seed).await;
        let id = lab.server("s", json!({})).await;
        lab.until(&id, "ACTIVE").await;
        (lab.show(&id).await.to_string(), lab.cloud.clouds_yaml())
    };
    assert_eq!(run(7).await, run(7).await);
    assert_ne!(run(7).await.1, run(8).await.1);
}
