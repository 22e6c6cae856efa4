//! Images made, filled, changed and deleted by their owners.

use super::{Data, Image, render, unknown_path};
use crate::cloud::http::{Answer, Call, Content, Reply, webob};
use crate::cloud::state::State;
use http::Method;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha512};

/// What a client may not write.
const READ_ONLY: [&str; 11] = [
    "owner",
    "status",
    "size",
    "virtual_size",
    "checksum",
    "created_at",
    "updated_at",
    "self",
    "file",
    "schema",
    "stores",
];

pub(super) fn create(state: &mut State, call: &Call) -> Answer {
    if !call.session.is_member() {
        return Err(denied("add_image"));
    }
    let body = call.json().ok().filter(Value::is_object);
    let body = body.ok_or_else(|| webob(400, "JSON body is malformed"))?;
    let none = Map::new();
    let asked = body.as_object().unwrap_or(&none);
    let id = asked.get("id").and_then(Value::as_str).map(str::to_owned);
    let id = id.unwrap_or_else(|| state.uuid());
    if state.images.all.contains_key(&id) {
        return Err(webob(409, &format!("Image ID {id} already exists!")));
    }
    let mut image = Image::queued(id, call.session.project(), state.now());
    for (field, value) in asked {
        set(call, &mut image, field, value)?;
    }
    let base = &state.config.base_url;
    let reply = Reply::json(201, render(&image))
        .with("location", format!("{base}/image/v2/images/{}", image.id));
    state.images.all.insert(image.id.clone(), image);
    Ok(reply)
}

fn denied(action: &str) -> Reply {
    webob(403, &format!("You are not authorized to complete {action} action."))
}

/// Writes one field, from a create or a patch.
fn set(call: &Call, image: &mut Image, field: &str, value: &Value) -> Result<(), Reply> {
    let bad = || {
        let said = format!(
            "Provided object does not match schema 'image': {value} is not of the type of {field}"
        );
        webob(400, &said)
    };
    let text = || value.as_str().map(str::to_owned);
    match field {
        "id" => {}
        "name" => image.name = text(),
        "disk_format" => image.disk_format = text(),
        "container_format" => image.container_format = text(),
        "min_ram" => image.min_ram = value.as_u64().ok_or_else(bad)?,
        "min_disk" => image.min_disk = value.as_u64().ok_or_else(bad)?,
        "protected" => image.protected = value.as_bool().ok_or_else(bad)?,
        "os_hidden" => image.hidden = value.as_bool().ok_or_else(bad)?,
        "tags" => image.tags = serde_json::from_value(value.clone()).map_err(|_| bad())?,
        "visibility" => match value.as_str() {
            Some("public") if !call.session.is_admin() => return Err(denied("publicize_image")),
            Some(wanted @ ("public" | "community" | "shared" | "private")) => {
                wanted.clone_into(&mut image.visibility);
            }
            _ => return Err(bad()),
        },
        field if READ_ONLY.contains(&field) || field.starts_with("os_hash_") => {
            return Err(webob(403, &format!("Attribute '{field}' is read-only.")));
        }
        field => {
            image.properties.insert(field.to_owned(), text().ok_or_else(bad)?);
        }
    }
    Ok(())
}

/// `/images/{id}` and what is below it, but its members.
pub(super) fn answer(state: &mut State, call: &Call, id: &str, rest: &[&str]) -> Answer {
    let now = state.now();
    let Some(image) = state.images.all.get_mut(id) else {
        return Err(unknown_path());
    };
    if (&call.method, rest) == (&Method::GET, &["file"]) {
        return Ok(download(image));
    }
    let own = call.session.is_member() && call.session.sees(&image.owner);
    let action = match (&call.method, rest) {
        (&Method::PUT, ["file"]) => "upload_image",
        (&Method::PATCH, []) => "modify_image",
        (&Method::DELETE, []) => "delete_image",
        (&Method::PUT | &Method::DELETE, ["tags", _]) => "modify_image",
        (&Method::POST, ["actions", "deactivate"]) => "deactivate",
        (&Method::POST, ["actions", "reactivate"]) => "reactivate",
        _ => return Err(unknown_path()),
    };
    if !own {
        return Err(denied(action));
    }
    image.updated = now;
    match (&call.method, rest) {
        (&Method::PUT, ["file"]) => upload(image, call),
        (&Method::PUT, ["tags", tag]) => {
            image.tags.insert((*tag).to_owned());
            Ok(Reply::empty(204))
        }
        (_, ["tags", tag]) => match image.tags.remove(*tag) {
            true => Ok(Reply::empty(204)),
            false => Err(webob(404, &format!("Tag {tag} was not found."))),
        },
        (_, ["actions", action]) => {
            image.status = if *action == "deactivate" { "deactivated" } else { "active" };
            Ok(Reply::empty(204))
        }
        (&Method::PATCH, _) => {
            patch(image, call)?;
            Ok(Reply::json(200, render(image)))
        }
        _ if image.protected => {
            Err(webob(403, &format!("Image {id} is protected and cannot be deleted.")))
        }
        _ => {
            state.images.all.shift_remove(id);
            Ok(Reply::empty(204))
        }
    }
}

fn download(image: &Image) -> Reply {
    match image.data.as_ref().filter(|data| !data.bytes.is_empty()) {
        Some(data) => {
            Reply { status: 200, headers: Vec::new(), content: Content::Bytes(data.bytes.clone()) }
        }
        None => Reply::empty(204),
    }
}

fn upload(image: &mut Image, call: &Call) -> Answer {
    if image.disk_format.is_none() || image.container_format.is_none() {
        let said = "Properties disk_format, container_format must be set prior to saving data.";
        return Err(webob(400, said));
    }
    if image.status != "queued" {
        let said =
            format!("Image status transition from {} to saving is not allowed", image.status);
        return Err(webob(409, &said));
    }
    let hash = Sha512::digest(&call.body).iter().map(|byte| format!("{byte:02x}")).collect();
    let size = u64::try_from(call.body.len()).unwrap_or(u64::MAX);
    image.data = Some(Data { size, bytes: call.body.clone(), hash });
    image.status = "active";
    Ok(Reply::empty(204))
}

/// `[{"op": "replace", "path": "/name", "value": ".."}]`.
fn patch(image: &mut Image, call: &Call) -> Result<(), Reply> {
    let bad = |why: &str| webob(400, why);
    let body = call.json().map_err(|_| bad("JSON body is malformed"))?;
    let Some(operations) = body.as_array() else {
        return Err(bad("Request body must be a JSON array of operation objects."));
    };
    for operation in operations {
        let path = operation["path"].as_str().and_then(|path| path.strip_prefix('/'));
        let Some(field) = path else {
            return Err(bad("Operation objects must contain a path."));
        };
        match operation["op"].as_str() {
            Some("add" | "replace") => set(call, image, field, &operation["value"])?,
            Some("remove") => {
                if image.properties.remove(field).is_none() {
                    let said = format!("Property {field} does not exist.");
                    return Err(webob(409, &said));
                }
            }
            _ => return Err(bad("Operation objects must contain one of add, remove, replace.")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_read_only_is_named_as_it_is_shown() {
        let image = Image::planted("i", "n", "p", jiff::Timestamp::UNIX_EPOCH);
        let shown = render(&image);
        assert!(READ_ONLY.iter().all(|field| shown.get(field).is_some()), "{shown}");
        assert_eq!(shown["size"], json!(65_536));
    }
}
