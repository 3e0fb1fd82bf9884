//! The OpenAPI 3.1 document of the API, made from the handlers.

use axum::Json;
use utoipa::OpenApi as _;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::Type;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ObjectBuilder, OpenApi, Ref, RefOr, Required};

use super::Needs;
use super::problem::Problem;

/// The document without its routes.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Nearcast control plane",
        description = "Registry, ingest, playback and steering \
        of a directed video CDN. Errors are problems (RFC 9457)."
    ),
    components(responses(Problem)),
    tags((name = "members", description = "On the fleet's address only ([fleet] listen), over TLS \
        1.3, where members show their certificates"))
)]
struct Frame;

/// The document of all routes.
pub fn document() -> OpenApi {
    let mut document = Frame::openapi();
    let bearer = Http::builder().scheme(HttpAuthScheme::Bearer).description(Some(ROLES));
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(bearer.build()));
    for mut route in super::routes().into_iter().chain(super::fleet_routes()) {
        components.schemas.extend(route.schemas);
        for (path, item) in &mut route.documented.paths {
            let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                complete(path, operation);
                secure(route.needs, operation);
            }
        }
        document.paths.merge(route.documented);
    }
    document
}

/// Adds to an operation the parts that its path and the specification give it: names in the path,
/// the problem that any may answer with, and descriptions of answers.
fn complete(path: &str, operation: &mut Operation) {
    let answers = &mut operation.responses.responses;
    for answer in answers.values_mut() {
        if let RefOr::T(answer) = answer
            && answer.description.is_empty()
        {
            "What was asked for".clone_into(&mut answer.description);
        }
    }
    let problem = Ref::from_response_name("Problem");
    answers.insert("default".to_owned(), RefOr::Ref(problem));
    let parts = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let names = parts.filter_map(|part| name_in(path, part)).map(RefOr::T);
    operation.parameters.get_or_insert_default().splice(..0, names);
    operation.parameters.take_if(|parameters| parameters.is_empty());
}

/// The name or id that stands in a path as `{part}`; none for files.
fn name_in(path: &str, part: &str) -> Option<Parameter> {
    let (description, pattern) = match part {
        "id" if path.starts_with("/v1/objects/") => (OBJECT, OBJECT_PATTERN),
        "object" => (OBJECT, OBJECT_PATTERN),
        "id" if path.starts_with("/v1/tokens/") => ("Id of the token", TOKEN_PATTERN),
        "id" => ("Name of the appliance", NAME_PATTERN),
        "site" => ("Name of the site", NAME_PATTERN),
        "name" => ("Name of the front", NAME_PATTERN),
        "asset" => ("Name of the asset", NAME_PATTERN),
        "address" => ("IPv4 or IPv6 address", ADDRESS_PATTERN),
        "version" => ("Name of the version, derived from its content", NAME_PATTERN),
        "session" if path.starts_with("/v1/playbacks/") => (SESSION, SESSION_PATTERN),
        "session" => (SEALED, SEALED_PATTERN),
        _ => return None,
    };
    let schema = ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern));
    let parameter = ParameterBuilder::new().name(part).parameter_in(ParameterIn::Path);
    let parameter = parameter.required(Required::True).description(Some(description));
    Some(parameter.schema(Some(schema)).build())
}

/// The rule of `model::id`: up to 63 of these.
const NAME_PATTERN: &str = "^[a-z0-9][a-z0-9._-]{0,62}$";
const ADDRESS_PATTERN: &str = "^[0-9a-fA-F.:]{2,45}$";
const OBJECT: &str = "Object id, 64 hex digits";
const OBJECT_PATTERN: &str = "^[0-9a-f]{64}$";
const SESSION: &str = "`session` of POST /v1/playbacks";
/// 96 random bits.
const SESSION_PATTERN: &str = "^[A-Za-z0-9_-]{16}$";
const SEALED: &str = "As the entry manifest has it; players add _HLS_ and _DASH_ parameters";
/// A session, when it ends, what it is for, and a seal.
const SEALED_PATTERN: &str = "^[A-Za-z0-9._~:-]{1,1024}$";
const TOKEN_PATTERN: &str = "^[0-9a-f]{12}$";

/// Says of an operation which role its caller needs.
fn secure(needs: Needs, operation: &mut Operation) {
    if matches!(needs, Needs::Nothing | Needs::Login | Needs::Member) {
        return;
    }
    let nothing: [&str; 0] = [];
    operation.security = Some(vec![SecurityRequirement::new("token", nothing)]);
    let role = format!("Needs the role {needs}.");
    operation.description = Some(match operation.description.take() {
        Some(text) if !text.is_empty() => format!("{text}\n\n{role}"),
        Some(_) | None => role,
    });
}

const ROLES: &str = "A token that nearcast-control token, or POST /v1/tokens, has made. Roles: \
    viewer < operator < admin, and service for programs that start and end playbacks. Not needed \
    from the machine itself while no token exists.";

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "fleet",
    responses((status = 200, content_type = "application/json", body = serde_json::Value,
        description = "OpenAPI 3.1")))]
pub(crate) async fn openapi() -> Json<OpenApi> {
    Json(document())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    #[test]
    fn every_route_is_documented_and_every_documented_one_is_a_route() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let documented = paths.iter().flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().keys();
            methods.map(move |method| format!("{} {path}", method.to_uppercase()))
        });
        let mut documented: Vec<String> = documented.collect();
        let route = |route: &crate::api::Route| {
            format!("{} {}", route.method, route.path.replace("{*", "{"))
        };
        let mut routes: Vec<String> =
            crate::api::routes().iter().chain(&crate::api::fleet_routes()).map(route).collect();
        documented.sort();
        routes.sort();
        assert_eq!(routes, documented);
    }

    #[test]
    fn what_is_tagged_for_members_is_what_the_fleets_address_has() {
        let document = document();
        let mut tagged = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let methods = item.as_object().unwrap().iter();
            let methods =
                methods.filter(|(_, what)| what["tags"] == serde_json::json!(["members"]));
            tagged.extend(methods.map(|(method, _)| format!("{} {path}", method.to_uppercase())));
        }
        let routes = crate::api::fleet_routes();
        let mut routes: Vec<String> =
            routes.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
        tagged.sort();
        routes.sort();
        assert_eq!(tagged, routes);
    }

    /// What the pages ask for. Their types are made from this snapshot (`web/types.mjs`).
    #[test]
    fn the_pages_are_made_with_the_schemas_of_the_document() {
        let document = document();
        let mut missing: Vec<String> = [
            "FleetOut",
            "RoutesOut",
            "SessionOut",
            "AuditOut",
            "PlaybackOut",
            "ViewersOut",
            "ShedRow",
            "FillOut",
            "PlanOut",
            "Popularity",
        ]
        .map(Into::into)
        .into();
        let mut schemas = serde_json::Map::new();
        while let Some(name) = missing.pop() {
            let schema = &document["components"]["schemas"][&name];
            assert!(schema.is_object(), "there is no {name}");
            if schemas.insert(name, schema.clone()).is_none() {
                walk(schema, &mut |value| {
                    let reference = value.get("$ref").and_then(Value::as_str);
                    let name = reference.and_then(|reference| reference.rsplit('/').next());
                    missing.extend(name.map(str::to_owned));
                });
            }
        }
        insta::assert_snapshot!("schemas", format!("{:#}", Value::Object(schemas)));
    }

    #[test]
    fn the_document_is_openapi_3_1_and_every_reference_in_it_leads_somewhere() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        let mut count = 0;
        walk(&document, &mut |value| {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else { return };
            let pointer = reference.strip_prefix('#').expect("references are local");
            assert!(document.pointer(pointer).is_some(), "{reference}");
            count += 1;
        });
        assert!(50 < count, "{count} references");
    }

    #[test]
    fn every_operation_has_a_summary_an_answer_and_its_path_parameters() {
        let document = document();
        let mut names = std::collections::BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let name = format!("{method} {path}");
                assert!(names.insert(operation["operationId"].to_string()), "{name}: name taken");
                assert!(operation["summary"].as_str().is_some_and(|s| !s.is_empty()), "{name}");
                let answers = operation["responses"].as_object().unwrap();
                assert!(answers.keys().any(|status| status.starts_with('2')), "{name}");
                let described = |answer: &Value| {
                    answer.get("$ref").is_some()
                        || answer["description"].as_str().is_some_and(|text| !text.is_empty())
                };
                assert!(answers.values().all(described), "{name}: an answer has no description");
                let described = operation["parameters"].as_array().cloned().unwrap_or_default();
                for parameter in path.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
                    let is_it = |p: &Value| p["name"] == parameter && p["in"] == "path";
                    assert!(described.iter().any(is_it), "{name} describes {parameter}");
                }
            }
        }
    }

    fn document() -> Value {
        serde_json::to_value(super::document()).unwrap()
    }

    fn walk(value: &Value, visit: &mut dyn FnMut(&Value)) {
        visit(value);
        match value {
            Value::Array(list) => list.iter().for_each(|value| walk(value, visit)),
            Value::Object(fields) => fields.values().for_each(|value| walk(value, visit)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}
