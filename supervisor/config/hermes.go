package config

// Keys of Hermes Agent's config.yaml (version 32) that are valid and have no effect here. They are listed so
// that an existing home loads without a warning for each, and so that a misspelt one still gets one.

var hermesTop = []string{
	"providers", "fallback_providers", "credential_pool_strategies", "toolsets", "platform_toolsets",
	"max_concurrent_sessions", "max_live_sessions", "timezone", "mcp_discovery_timeout", "mcp_servers",
	"prefill_messages_file", "command_allowlist", "quick_commands", "platform_hints", "hooks",
	"hooks_auto_accept", "personalities", "paste_collapse_threshold", "_config_version",
	"web", "browser", "checkpoints", "tool_loop_guardrails", "compression", "context", "prompt_caching",
	"delegation", "auxiliary", "security", "cron", "gateway", "streaming", "sessions", "session_reset",
	"display", "logging", "skills", "curator", "openrouter", "bedrock", "vertex", "tts", "stt", "voice",
	"human_delay", "dashboard", "privacy", "moa", "goals", "honcho", "slack", "discord", "whatsapp",
	"telegram", "mattermost", "matrix", "code_execution", "tools", "model_catalog", "network", "onboarding",
	"updates", "lsp", "x_search", "secrets", "computer_use", "desktop", "kanban", "tool_output", "platforms",
	"plugins", "multiplex_profiles", "smart_model_routing", "group_sessions_per_user",
	"thread_sessions_per_user", "background_process_notifications", "custom_providers", "fallback_model",
}

var hermesModel = []string{"api_key", "api_mode", "context_length", "max_tokens", "temperature", "extra_body", "ollama_num_ctx"}

var hermesAgent = []string{
	"gateway_timeout", "gateway_timeout_warning", "gateway_notify_interval",
	"gateway_auto_continue_freshness", "restart_drain_timeout", "clarify_timeout", "service_tier",
	"tool_use_enforcement", "intent_ack_continuation", "task_completion_guidance",
	"parallel_tool_call_guidance", "environment_probe", "coding_context", "verify_guidance",
	"max_verify_nudges", "verify_on_stop", "image_input_mode", "disabled_toolsets", "reasoning_effort",
	"personalities", "system_prompt", "verbose", "environment_hint",
}

var hermesTerminal = []string{
	"daemon_term_grace_seconds", "auto_source_bashrc", "persistent_shell", "docker_image",
	"singularity_image", "modal_image", "daytona_image", "container_cpu", "container_memory",
	"container_disk", "container_persistent", "docker_mount_cwd_to_workspace", "docker_volumes",
	"docker_forward_env", "docker_env", "docker_extra_args", "docker_run_as_host_user", "lifetime_seconds",
	"modal_mode", "shell_init_files", "home_mode", "vercel_runtime",
}

var hermesMemory = []string{"write_approval", "provider", "nudge_interval", "flush_min_turns"}

var hermesApprovals = []string{"cron_mode", "mcp_reload_confirm", "destructive_slash_confirm"}

var hermesDatabase = []string{"cache_size", "mmap_size", "temp_store", "wal_autocheckpoint", "journal_size_limit", "synchronous"}
