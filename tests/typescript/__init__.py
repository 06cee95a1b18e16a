"""A reader in TypeScript."""
