"""The rules that learn a pace, observation by observation, and its words."""
