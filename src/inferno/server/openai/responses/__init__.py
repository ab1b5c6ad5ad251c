"""OpenAI's Responses API: its requests become chats, and their chunks its items and events."""
