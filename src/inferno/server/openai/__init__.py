"""The endpoints of OpenAI's API: chats, completions, models and tokens."""
