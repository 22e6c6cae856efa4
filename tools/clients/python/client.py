"""Tells a story with the Python client that must come out alike on every API server: typed, dynamic, watch, errors."""

import base64
import json
import os
import tempfile
import time

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import DynamicApiError, NotFoundError, ResourceNotFoundError

NAMESPACE = "python"
# How long anything may take that is sure to come, in seconds: machines are slow and busy.
PATIENCE = 240
KIND = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "parrots.python.example.com"},
    "spec": {
        "group": "python.example.com",
        "scope": "Namespaced",
        "names": {"plural": "parrots", "singular": "parrot", "kind": "Parrot"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["color"],
                                "properties": {
                                    "color": {"type": "string", "enum": ["blue", "green"]},
                                    "age": {"type": "integer", "default": 1},
                                },
                            },
                            "status": {"type": "object", "properties": {"state": {"type": "string"}}},
                        },
                    }
                },
            }
        ],
    },
}


def expect(step, got, wanted):
    """Prints a step and what came of it, and ends when something else was to come of it."""
    print(f"{step}: {got}", flush=True)
    if got != wanted:
        raise SystemExit(f"DIFFERS: wanted {wanted}")


def refused(step, code, call):
    """Prints how a call failed, as the client shows it."""
    try:
        call()
    except (ApiException, DynamicApiError) as error:
        status = json.loads(error.body)
        print(f"{step}: {error.status} {status['reason']}: {status['message']}", flush=True)
        for cause in status.get("details", {}).get("causes", []):
            print(f"  {cause.get('reason')} {cause.get('field')}: {cause.get('message')}")
        if error.status != code:
            raise SystemExit(f"DIFFERS: wanted {code}") from error
        return
    raise SystemExit(f"DIFFERS: {step} should have been refused")


def eventually(what, condition):
    """Waits for a condition."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"DIFFERS: not within {PATIENCE} s: {what}")
        time.sleep(0.1)
    print(f"{what}: yes", flush=True)


def is_gone(read):
    """Whether a read finds nothing any more."""
    try:
        read()
    except (ApiException, NotFoundError) as error:
        return error.status == 404
    return False


def typed(core):
    """Objects of every cluster."""
    body = client.V1ConfigMap(
        metadata=client.V1ObjectMeta(name="one", labels={"set": "a"}), data={"key": "1"}
    )
    made = core.create_namespaced_config_map(NAMESPACE, body)
    expect("made", made.data, {"key": "1"})
    refused("made again", 409, lambda: core.create_namespaced_config_map(NAMESPACE, body))
    patched = core.patch_namespaced_config_map("one", NAMESPACE, {"data": {"key": None, "more": "2"}})
    expect("patched", patched.data, {"more": "2"})
    steps = [{"op": "add", "path": "/data/third", "value": "3"}]
    patched = core.patch_namespaced_config_map("one", NAMESPACE, steps)
    expect("patched by steps", patched.data, {"more": "2", "third": "3"})
    made.data = {"key": "old"}
    refused("replaced from an old state", 409, lambda: core.replace_namespaced_config_map("one", NAMESPACE, made))
    refused("read another", 404, lambda: core.read_namespaced_config_map("two", NAMESPACE))
    refused(
        "made with a bad name",
        422,
        lambda: core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "Bad_Name"}}),
    )
    text = base64.b64encode(b"secret").decode()
    secret = core.create_namespaced_secret(NAMESPACE, {"metadata": {"name": "s"}, "data": {"text": text}})
    expect("secret", (secret.type, base64.b64decode(secret.data["text"])), ("Opaque", b"secret"))
    listed = core.list_namespaced_config_map(NAMESPACE, label_selector="set in (a,b)", limit=1)
    expect("listed", [one.metadata.name for one in listed.items], ["one"])
    expect("namespace", core.read_namespace(NAMESPACE).status.phase, "Active")


def watched(core):
    """What a watch tells after a list, and that the server ends it when asked to."""
    since = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "seen", "labels": {"watched": "yes"}}})
    core.patch_namespaced_config_map("seen", NAMESPACE, {"data": {"a": "b"}})
    core.delete_namespaced_config_map("seen", NAMESPACE)
    marked = {"label_selector": "watched=yes"}
    stream = watch.Watch()
    told = []
    for event in stream.stream(
        core.list_namespaced_config_map,
        NAMESPACE,
        resource_version=since,
        timeout_seconds=PATIENCE,
        **marked,
    ):
        told.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            stream.stop()
    expect("watched", told, [("ADDED", "seen"), ("MODIFIED", "seen"), ("DELETED", "seen")])
    now = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    rest = watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, resource_version=now, timeout_seconds=1, **marked)
    expect("watched until it ended", list(rest), [])


def workload(apps, core):
    """A Deployment as a file has it, scaled and deleted with its pods."""
    labels = {"app": "web"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "example.com/web"}]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod},
    }
    utils.create_from_dict(apps.api_client, deployment)
    eventually("one pod is ready", lambda: apps.read_namespaced_deployment("web", NAMESPACE).status.ready_replicas == 1)
    scale = apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 2}})
    expect("scaled", scale.spec.replicas, 2)
    eventually("two pods are ready", lambda: apps.read_namespaced_deployment("web", NAMESPACE).status.ready_replicas == 2)
    pods = core.list_namespaced_pod(NAMESPACE, label_selector="app=web").items
    expect("owners", sorted({pod.metadata.owner_references[0].kind for pod in pods}), ["ReplicaSet"])
    expect("phases", [pod.status.phase for pod in pods], ["Running", "Running"])
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=pods[0].metadata.name))
    core.create_namespaced_pod_eviction(pods[0].metadata.name, NAMESPACE, eviction)
    eventually("an evicted pod is gone", lambda: is_gone(lambda: core.read_namespaced_pod(pods[0].metadata.name, NAMESPACE)))
    apps.delete_namespaced_deployment("web", NAMESPACE, propagation_policy="Foreground")
    eventually("all is gone", lambda: is_gone(lambda: apps.read_namespaced_deployment("web", NAMESPACE)))


def discovered(api, version, kind):
    """A kind, as soon as the server names it: that may be a moment after it is served."""
    found = []

    def known():
        # Anew, for what a client once learned of a server it keeps, in a file.
        with tempfile.TemporaryDirectory() as room:
            learned = dynamic.DynamicClient(api, cache_file=os.path.join(room, "kinds"))
            try:
                found.append(learned.resources.get(api_version=version, kind=kind))
            except ResourceNotFoundError:
                return False
        return True

    eventually("the kind is discovered", known)
    return found[0]


def custom(api):
    """A kind that is learned by discovery."""
    definitions = client.ApiextensionsV1Api(api)
    definitions.create_custom_resource_definition(KIND)

    def established():
        conditions = definitions.read_custom_resource_definition(KIND["metadata"]["name"]).status.conditions or []
        return any(one.type == "Established" and one.status == "True" for one in conditions)

    eventually("the kind is established", established)
    objects = client.CustomObjectsApi(api)
    where = ("python.example.com", "v1", NAMESPACE, "parrots")
    eventually("the kind is served", lambda: not is_gone(lambda: objects.list_namespaced_custom_object(*where)))
    parrots = discovered(api, "python.example.com/v1", "Parrot")
    body = {"apiVersion": "python.example.com/v1", "kind": "Parrot", "metadata": {"name": "polly"}, "spec": {"color": "blue"}}
    made = parrots.create(body, namespace=NAMESPACE)
    expect("made", made.spec.to_dict(), {"age": 1, "color": "blue"})
    wrong = body | {"metadata": {"name": "wrong"}, "spec": {"color": "red"}}
    refused("a wrong one", 422, lambda: parrots.create(wrong, namespace=NAMESPACE))
    merge = {"content_type": "application/merge-patch+json"}
    patched = parrots.patch({"metadata": {"name": "polly"}, "spec": {"age": 7}}, namespace=NAMESPACE, **merge)
    expect("patched", patched.spec.age, 7)
    applied = parrots.server_side_apply(
        body | {"spec": {"color": "green"}}, namespace=NAMESPACE, field_manager="keeper", force_conflicts=True
    )
    expect("applied", applied.spec.to_dict(), {"age": 7, "color": "green"})
    expect("managers", sorted({one.manager.split("/")[0] for one in applied.metadata.managedFields}), ["OpenAPI-Generator", "keeper"])
    state = objects.patch_namespaced_custom_object_status(*where, "polly", {"status": {"state": "talking"}})
    expect("status", state["status"], {"state": "talking"})
    expect("listed", [one.metadata.name for one in parrots.get(namespace=NAMESPACE).items], ["polly"])
    parrots.delete(name="polly", namespace=NAMESPACE)
    refused("read after deletion", 404, lambda: parrots.get(name="polly", namespace=NAMESPACE))
    definitions.delete_custom_resource_definition(KIND["metadata"]["name"])
    eventually("the kind is gone", lambda: is_gone(lambda: definitions.read_custom_resource_definition(KIND["metadata"]["name"])))


def main():
    """The story."""
    config.load_kube_config()
    api = client.ApiClient()
    core = client.CoreV1Api(api)
    core.create_namespace({"metadata": {"name": NAMESPACE}})
    typed(core)
    watched(core)
    workload(client.AppsV1Api(api), core)
    custom(api)
    core.delete_namespace(NAMESPACE)
    eventually("the namespace is gone", lambda: is_gone(lambda: core.read_namespace(NAMESPACE)))


main()
