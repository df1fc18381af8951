//! The adapter between the protocol library and the tools, prompts and resources.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use raglan_core::tool::Tool;
use raglan_texts::text;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams,
    CompleteResult, CompletionInfo, ContentBlock, ErrorData, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams, PromptMessage,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    Reference, ResourceContents, Role, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Map, Value, json};

use super::descriptions;
use super::envelope::MODERN_VERSION;
use super::exchange::Exchange;
use super::failure::{Failure, Told, denied, tell, tell_in_protocol};
use crate::tools::{self, Services, ToolCall, ToolError, ToolOutput};
use crate::{prompts, resources};

const SERVER_INFO_META: &str = "io.modelcontextprotocol/serverInfo";
const ERROR_META: &str = "raglan/error";
/// Left of a call's time for what the engines that did answer have found.
const RESERVED_FOR_MERGING: Duration = Duration::from_millis(100);

/// The MCP server. One is made for every request, so it holds nothing of its own.
#[derive(Clone)]
pub struct Server {
    services: Arc<Services>,
}

impl Server {
    /// A server over these services.
    #[must_use]
    pub const fn new(services: Arc<Services>) -> Self {
        Self { services }
    }

    fn call<'a>(&'a self, exchange: &'a Exchange) -> ToolCall<'a> {
        ToolCall {
            services: &self.services,
            caller: &exchange.caller,
            early_read: &exchange.early_read,
            engines_until: exchange
                .until
                .checked_sub(RESERVED_FOR_MERGING)
                .unwrap_or(exchange.until),
            traceparent: exchange.record.traceparent(),
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        descriptions::server(self.services.language)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let exchange = Exchange::of(&context)?;
        only_page(request, &exchange)?;
        let permitted = descriptions::tools(exchange.language)
            .iter()
            .filter(|(tool, _)| exchange.caller.grant.permit_tool(*tool).is_ok());
        let shown = permitted.map(|(_, shown)| shown.clone());
        exchange.parts.set_tools(shown);
        let mut result = ListToolsResult::with_all_items(Vec::new())
            .with_ttl_ms(0)
            .with_cache_scope(CacheScope::Private);
        result.meta = result_meta(&context, None);
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let exchange = Exchange::of(&context)?;
        let arguments = request.arguments.unwrap_or_default();
        let record = &exchange.record;
        record.tool_call(&request.name, &arguments);
        let Some(tool) = Tool::from_name(&request.name) else {
            record.failed("unknown_tool");
            let message = text!(
                exchange.language,
                "There is no tool of this name. tools/list names the tools."
            );
            return Err(ErrorData::invalid_params(message, None));
        };
        if let Err(denial) = exchange.caller.grant.permit_tool(tool) {
            return Err(denied(record, denial, exchange.language));
        }
        if !exchange.used_up.contains_key(&tool) {
            exchange.announce().await?;
        }
        let call = self.call(&exchange);
        let work = async {
            if let Some(used_up) = exchange.used_up.get(&tool) {
                return Err(ToolError::QuotaUsedUp(*used_up));
            }
            tools::run(tool, &call, &arguments).await
        };
        let result = match guarded(&exchange, work).await {
            Ok(output) => {
                let result = success(&output, &exchange, &context);
                record.answered(
                    output.knowledge_bases,
                    output.result_count,
                    output.guard_findings,
                );
                result
            }
            Err(failure) => match tell(&failure, &exchange) {
                Told::Protocol(error) => return Err(error),
                Told::Result {
                    class,
                    retryable,
                    message,
                } => {
                    record.failed(class);
                    let details = json!({
                        "code": class, "retryable": retryable, "request_id": exchange.request_id
                    });
                    let mut result = CallToolResult::error(vec![ContentBlock::text(message)]);
                    result.meta = result_meta(&context, Some(details));
                    result
                }
            },
        };
        Ok(result.into())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let exchange = Exchange::of(&context)?;
        only_page(request, &exchange)?;
        let offered = prompts::is_offered(&self.call(&exchange));
        let shown = if offered {
            vec![descriptions::prompt(exchange.language)]
        } else {
            Vec::new()
        };
        let mut result = ListPromptsResult::with_all_items(shown)
            .with_ttl_ms(0)
            .with_cache_scope(CacheScope::Private);
        result.meta = result_meta(&context, None);
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let exchange = Exchange::of(&context)?;
        let arguments = request.arguments.unwrap_or_default();
        exchange.record.access(&Map::from_iter([
            ("name".to_owned(), request.name.as_str().into()),
            ("arguments".to_owned(), arguments.clone().into()),
        ]));
        let call = self.call(&exchange);
        let known = request.name == prompts::ANSWER_FROM_KNOWLEDGE_BASE;
        if !known || !prompts::is_offered(&call) {
            if known {
                exchange.record.denied("prompt_not_permitted");
            } else {
                exchange.record.failed("unknown_prompt");
            }
            return Err(ErrorData::invalid_params(
                text!(exchange.language, "There is no prompt of this name."),
                None,
            ));
        }
        exchange.announce().await?;
        let text = guarded(
            &exchange,
            prompts::answer_from_knowledge_base(&call, &arguments),
        )
        .await
        .map_err(|failure| tell_in_protocol(&failure, &exchange))?;
        let mut result = GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)])
            .with_description(prompts::description(exchange.language));
        result.meta = result_meta(&context, None);
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let exchange = Exchange::of(&context)?;
        let cursor = request.and_then(|params| params.cursor);
        let call = self.call(&exchange);
        let page = guarded(&exchange, resources::list(&call, cursor.as_deref()))
            .await
            .map_err(|failure| tell_in_protocol(&failure, &exchange))?;
        let shown = page.items.iter().map(descriptions::resource).collect();
        let mut result = ListResourcesResult::with_all_items(shown)
            .with_ttl_ms(0)
            .with_cache_scope(CacheScope::Private);
        result.next_cursor = page.next_cursor;
        result.meta = result_meta(&context, None);
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let exchange = Exchange::of(&context)?;
        only_page(request, &exchange)?;
        let shown = descriptions::resource_templates(exchange.language);
        let mut result = ListResourceTemplatesResult::with_all_items(shown)
            .with_ttl_ms(0)
            .with_cache_scope(CacheScope::Private);
        result.meta = result_meta(&context, None);
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let exchange = Exchange::of(&context)?;
        let record = &exchange.record;
        let uri = request.uri.as_str().into();
        record.access(&Map::from_iter([("uri".to_owned(), uri)]));
        exchange.announce().await?;
        let call = self.call(&exchange);
        let found = guarded(&exchange, resources::read(&call, &request.uri))
            .await
            .map_err(|failure| tell_in_protocol(&failure, &exchange))?;
        let Some(resource) = found else {
            record.denied("resource_not_permitted");
            let uri = json!({ "uri": request.uri });
            return Err(ErrorData::resource_not_found(
                text!(exchange.language, "resource not found"),
                Some(uri),
            ));
        };
        record.answered(vec![resource.kb_id], 1, std::collections::BTreeMap::new());
        let text =
            ResourceContents::text(resource.text, request.uri).with_mime_type(resource.mime_type);
        let mut result = ReadResourceResult::new(vec![text])
            .with_ttl_ms(0)
            .with_cache_scope(CacheScope::Private);
        result.meta = result_meta(&context, None);
        Ok(result.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let exchange = Exchange::of(&context)?;
        let known = match &request.r#ref {
            Reference::Prompt(prompt) => prompt.name == prompts::ANSWER_FROM_KNOWLEDGE_BASE,
            Reference::Resource(template) => [
                resources::KNOWLEDGE_BASE_TEMPLATE,
                resources::DOCUMENT_TEMPLATE,
            ]
            .contains(&template.uri.as_str()),
            _ => false,
        };
        if !known {
            exchange.record.failed("unknown_reference");
            return Err(ErrorData::invalid_params(
                text!(
                    exchange.language,
                    "There is nothing of this name to complete."
                ),
                None,
            ));
        }
        let mut completion = CompletionInfo::default();
        if request.argument.name == "kb_id" {
            let call = self.call(&exchange);
            let prefix = &request.argument.value;
            let work = resources::complete_kb_id(&call, prefix, CompletionInfo::MAX_VALUES);
            let (values, total) = guarded(&exchange, work)
                .await
                .map_err(|failure| tell_in_protocol(&failure, &exchange))?;
            completion.has_more = Some(total > values.len());
            completion.total = u32::try_from(total).ok();
            completion.values = values;
        }
        let mut result = CompleteResult::new(completion);
        result.meta = result_meta(&context, None);
        Ok(result)
    }
}

/// Does the work so that neither a panic nor a hanging engine takes the request with it: the protocol
/// library would wait for ever.
///
/// The work is boxed: the library copies the future of a whole request several times, which is as large
/// as that of its largest method.
fn guarded<'a, T>(
    exchange: &Exchange,
    work: impl Future<Output = Result<T, ToolError>> + Send + 'a,
) -> impl Future<Output = Result<T, Failure>> + 'a {
    let work = Box::pin(AssertUnwindSafe(work).catch_unwind());
    let until = exchange.until;
    async move {
        match tokio::time::timeout_at(until, work).await {
            Ok(Ok(result)) => Ok(result?),
            Ok(Err(_panic)) => Err(Failure::Panicked),
            Err(_elapsed) => Err(Failure::TimedOut),
        }
    }
}

fn success(
    output: &ToolOutput,
    exchange: &Exchange,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let object = serde_json::to_string(&output.structured).unwrap_or_default();
    exchange.parts.set_tool_result(object);
    let mut result = CallToolResult::success(vec![ContentBlock::text("")]);
    result.structured_content = Some(Value::Object(Map::new()));
    result.meta = result_meta(context, None);
    result
}

/// For lists that fit on one page: the only valid cursor is the beginning.
fn only_page(
    request: Option<PaginatedRequestParams>,
    exchange: &Exchange,
) -> Result<(), ErrorData> {
    let cursor = request.and_then(|params| params.cursor).unwrap_or_default();
    if cursor.is_empty() {
        return Ok(());
    }
    exchange.record.failed("invalid_cursor");
    Err(ErrorData::invalid_params(
        text!(exchange.language, "The cursor is not valid here."),
        None,
    ))
}

/// The metadata of a result: the server's identity since 2026-07-28, and an error's machine part.
fn result_meta(context: &RequestContext<RoleServer>, error: Option<Value>) -> Option<MetaObject> {
    let mut meta = Map::new();
    if context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= MODERN_VERSION)
    {
        let info = json!({
            "name": descriptions::SERVER_NAME, "version": descriptions::SERVER_VERSION
        });
        meta.insert(SERVER_INFO_META.to_owned(), info);
    }
    if let Some(error) = error {
        meta.insert(ERROR_META.to_owned(), error);
    }
    if meta.is_empty() {
        None
    } else {
        Some(MetaObject(meta))
    }
}
