"""Values and pure functions that every layer shares; nothing here reads, writes, sleeps or imports a framework."""
