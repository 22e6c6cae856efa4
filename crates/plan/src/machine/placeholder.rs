//! What user-data that somebody else wrote leaves open: the machine's name and its bootstrap token.

use crate::bootstrap::USER_DATA_BASE64_CHARS_MAX;

/// Gardener: all occurrences are replaced, also URL-encoded ones, as in a file of Ignition's.
const TOKEN: [&str; 3] =
    ["<<BOOTSTRAP_TOKEN>>", "%3C%3CBOOTSTRAP_TOKEN%3E%3E", "%3c%3cBOOTSTRAP_TOKEN%3e%3e"];
const NAME: [&str; 3] =
    ["<<MACHINE_NAME>>", "%3C%3CMACHINE_NAME%3E%3E", "%3c%3cMACHINE_NAME%3e%3e"];

/// Whether a machine that boots with this needs a token.
#[must_use]
pub fn wants_token(text: &str) -> bool {
    TOKEN.iter().any(|placeholder| text.contains(placeholder))
}

/// The text with its placeholders filled in. Neither a machine's name nor a token has a character that a URL would
/// encode, so both forms get the same value.
///
/// # Errors
/// When Nova would not take as much.
pub fn fill(text: &str, machine_name: &str, token: &str) -> Result<Vec<u8>, String> {
    let mut filled = text.to_owned();
    for (placeholders, value) in [(TOKEN, token), (NAME, machine_name)] {
        for placeholder in placeholders {
            filled = filled.replace(placeholder, value);
        }
    }
    let chars = filled.len().div_ceil(3) * 4;
    if chars > USER_DATA_BASE64_CHARS_MAX {
        return Err(format!(
            "user-data is {chars} characters in base64, {USER_DATA_BASE64_CHARS_MAX} are allowed; let the machine \
             fetch a part of it"
        ));
    }
    Ok(filled.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_every_placeholder_is_filled() {
        let text =
            "#cloud-config\n# <<MACHINE_NAME>> is <<MACHINE_NAME>>\ntoken: <<BOOTSTRAP_TOKEN>>\n";
        assert!(wants_token(text));
        let filled = fill(text, "nodes-1", "abcdef.0123456789abcdef").unwrap();
        insta::assert_snapshot!(String::from_utf8(filled).unwrap(), @r"
        #cloud-config
        # nodes-1 is nodes-1
        token: abcdef.0123456789abcdef
        ");
        let url = "data:,%3C%3CMACHINE_NAME%3E%3E%0A%3c%3cBOOTSTRAP_TOKEN%3e%3e";
        assert!(wants_token(url));
        assert_eq!(fill(url, "n", "a.b").unwrap(), b"data:,n%0Aa.b");
        assert!(!wants_token("#cloud-config <BOOTSTRAP_TOKEN>"));
    }

    #[test]
    fn what_nova_would_not_take_is_refused_here() {
        let error = fill(&"x".repeat(49_152), "n", "").unwrap_err();
        assert!(error.contains("65536 characters"), "{error}");
        assert!(fill(&"x".repeat(49_149), "n", "").is_ok());
    }
}
