//! Asks the cloud for the next step of a machine, and puts its answer into the words of plans.

use super::description::{self, Described, credentials, foreign_user_data};
use super::{Error, Known};
use crate::context::Context;
use crate::manager::Settings;
use crate::token::{self, Bearer, Token};
use crate::troubles::chain;
use drover_api::{Machine, ServerDescription};
use drover_plan::bootstrap::BootstrapToken;
use drover_plan::machine::{
    Answer, Refused, Retry, Server, ServerState, creation_timeout, placeholder, user_data,
};
use drover_plan::node::name_of;
use drover_plan::reason::Reason;
use drover_provider::{
    Claim, Created, Deleted, Error as CloudError, Instance, Memory, Order, Owner, PLACE, State,
    UserData,
};
use jiff::SignedDuration;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::time::Duration;

/// A token outlives the deadline for joining by this, for a node that joins at the last moment.
const TOKEN_SLACK: Duration = Duration::from_secs(600);

/// Goes on with making the server.
pub async fn create(
    machine: &Machine,
    described: &Described,
    memory: BTreeMap<String, String>,
    ctx: &Context,
) -> Result<Answer, Error> {
    let description = match described {
        Ok(description) => description,
        Err(message) => return Ok(refused(&CloudError::Invalid(message.clone()))),
    };
    let claim = match claim(machine, described, ctx).await {
        Ok(claim) => claim,
        Err(answer) => return answer,
    };
    let user_data = match boot_with(machine, description, ctx).await {
        Ok(user_data) => user_data,
        Err(answer) => return answer,
    };
    let order = Order { claim, user_data: UserData(user_data) };
    Ok(match ctx.provider.create(&order, &Memory(memory)).await {
        Ok(Created::Record(Memory(memory))) => Answer::Record { memory },
        Ok(Created::Waiting { memory: Memory(memory), waits_for, after }) => {
            Answer::Waiting { memory, waits_for, after }
        }
        Ok(Created::Done { memory: Memory(memory), instance }) => {
            Answer::Created { memory, server: server(instance) }
        }
        Err(error) => refused(&error),
    })
}

/// A live look at the server.
pub async fn look(
    machine: &Machine,
    described: &Described,
    ctx: &Context,
) -> Result<Answer, Error> {
    let claim = match claim(machine, described, ctx).await {
        Ok(claim) => claim,
        Err(answer) => return answer,
    };
    Ok(match ctx.provider.look(&claim).await {
        Ok(found) => Answer::Seen(found.map(server)),
        Err(error) => refused(&error),
    })
}

/// Goes on with deleting all that carries the machine's marks.
pub async fn delete(
    machine: &Machine,
    described: &Described,
    memory: BTreeMap<String, String>,
    ctx: &Context,
) -> Result<Answer, Error> {
    let claim = match claim(machine, described, ctx).await {
        Ok(claim) => claim,
        Err(answer) => return answer,
    };
    Ok(match ctx.provider.delete(&claim, &Memory(memory)).await {
        Ok(Deleted::Waiting { waits_for, after }) => Answer::Deleting { waits_for, after },
        Ok(Deleted::Gone) => Answer::Gone,
        Err(error) => refused(&error),
    })
}

/// Whose server, and with whose credentials. A description that cannot be read, or whose Secret is
/// gone, is answered as the cloud would: with a refusal.
async fn claim(
    machine: &Machine,
    described: &Described,
    ctx: &Context,
) -> Result<Claim, Result<Answer, Error>> {
    let owner = Owner {
        cluster: ctx.settings.cluster_id.clone(),
        machine: machine.uid().unwrap_or_default(),
        name: name_of(machine),
    };
    let (source, parameters) = match described {
        Ok(description) => {
            let parameters = serde_json::to_value(&description.server).unwrap_or_default();
            (description.credentials.clone(), parameters)
        }
        // The marks are the identity: with credentials and region there is enough to delete by. With
        // others nothing would be found, and taken for nothing being left.
        Err(_) => match description::rest_of(machine, ctx) {
            Ok((source, region)) => (source, serde_json::json!({ "region": region })),
            Err(error) => return Err(Ok(unknown(error.to_string()))),
        },
    };
    let credentials =
        credentials(&source, machine, ctx).await.map_err(|error| unread(machine, error))?;
    let memory = machine.status.as_ref().and_then(|status| status.provider_status.as_ref());
    let place = memory.and_then(|status| status.memory.get(PLACE).cloned());
    Ok(Claim { owner, credentials, parameters, place })
}

fn unread(machine: &Machine, error: description::Error) -> Result<Answer, Error> {
    match error {
        answer if answer.is_answer() => Ok(unknown(answer.to_string())),
        source => Err(Error::Describe { machine: machine.name_any(), source }),
    }
}

/// The cloud cannot even be asked.
fn unknown(message: String) -> Answer {
    let (why, code) = (Reason::CredentialsMissing, "Unauthenticated".to_owned());
    Answer::Refused(Refused { why, message, code, retry: Retry::OnChange })
}

/// The machine's user-data, with a token of its own in it.
async fn boot_with(
    machine: &Machine,
    description: &ServerDescription,
    ctx: &Context,
) -> Result<Vec<u8>, Result<Answer, Error>> {
    let foreign = foreign_user_data(&description.user_data, machine, ctx)
        .await
        .map_err(|error| unread(machine, error))?;
    if let Some(foreign) = foreign {
        let token = match placeholder::wants_token(&foreign) {
            true => own_token(machine, ctx).await.map_err(Err)?.text(),
            false => String::new(),
        };
        return placeholder::fill(&foreign, &name_of(machine), &token)
            .map_err(|error| Ok(refused(&CloudError::Invalid(error))));
    }
    if !ctx.settings.machine.joins {
        let way_out = "no node is awaited here; give user-data in the secretRef of a MachineClass";
        return Err(Ok(refused(&CloudError::Invalid(way_out.to_owned()))));
    }
    let token = own_token(machine, ctx).await.map_err(Err)?;
    BootstrapToken::parse(&token.text())
        .and_then(|token| {
            let Settings { nodes, machine: settings, .. } = &ctx.settings;
            let set = ctx.caches.set_of(machine);
            let of_pool = set.as_ref().and_then(|set| set.metadata.annotations.as_ref());
            let of_pool = of_pool.unwrap_or(const { &BTreeMap::new() });
            user_data(machine, description, token, nodes, of_pool, settings)
        })
        .map_err(|error| Ok(refused(&CloudError::Invalid(chain(&error)))))
}

/// The machine's bootstrap token, made when it has none.
async fn own_token(machine: &Machine, ctx: &Context) -> Result<Token, Error> {
    let name = format!("{}/{}", machine.namespace().unwrap_or_default(), machine.name_any());
    let uid = machine.uid().unwrap_or_default();
    let bearer = Bearer { machine_uid: &uid, machine: &name };
    let now = ctx.clock.now();
    let life = creation_timeout(machine, &ctx.settings.machine) + TOKEN_SLACK;
    let life = SignedDuration::try_from(life).unwrap_or(SignedDuration::from_hours(3));
    let expires = now.saturating_add(life).unwrap_or(now);
    match ctx.minds.of(machine).token {
        Known::There(token) if token.expires > now => Ok(token),
        Known::There(_) | Known::Nothing | Known::Gone => {
            // From here on it may be there, whatever becomes of the call.
            ctx.minds.knows_token(machine, Known::Nothing);
            let token = token::ensure(&ctx.client, bearer, expires, now)
                .await
                .map_err(|source| Error::Token { machine: machine.name_any(), source })?;
            ctx.minds.knows_token(machine, Known::There(token.clone()));
            Ok(token)
        }
    }
}

fn server(instance: Instance) -> Server {
    let Instance { provider_id, name, state, addresses, zone: _, created: _ } = instance;
    let state = match state {
        State::Building => ServerState::Building,
        State::Running => ServerState::Running,
        State::Stopped => ServerState::Stopped,
        State::Deleting => ServerState::Deleting,
        State::Failed { message } => ServerState::Failed(message),
    };
    let addresses = addresses.into_iter().map(|it| (it.address, it.external)).collect();
    Server { provider_id, name, state, addresses }
}

fn refused(error: &CloudError) -> Answer {
    let why = match error {
        CloudError::Unauthenticated(_) => Reason::CredentialsRefused,
        CloudError::Forbidden(_) => Reason::CloudForbids,
        CloudError::Invalid(_) => Reason::DescriptionRefused,
        CloudError::QuotaExceeded(_) => Reason::QuotaExceeded,
        CloudError::Exhausted(_) => Reason::CapacityExhausted,
        CloudError::ServerFailed(_) => Reason::ServerFailed,
        CloudError::Conflict(_) => Reason::CloudConflict,
        CloudError::Unavailable { .. } => Reason::CloudUnavailable,
        CloudError::Unanswered(_) => Reason::CloudSilent,
    };
    let retry = match error.retry() {
        drover_provider::Retry::OnChange => Retry::OnChange,
        drover_provider::Retry::After(wait) => Retry::After(wait),
        drover_provider::Retry::Backoff => Retry::Backoff,
    };
    Answer::Refused(Refused {
        why,
        message: error.to_string(),
        code: error.code().to_owned(),
        retry,
    })
}
