"""The pages of the documentation, and a newcomer who types in what they show."""
