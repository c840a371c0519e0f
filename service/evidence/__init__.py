"""What is known of an incident: at one moment (`moment`), beside a message (`briefing`), kept in the store (`bundle`)."""
