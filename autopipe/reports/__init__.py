"""What people and programs are shown of a search: a pure summary, and its forms as text and JSON."""
