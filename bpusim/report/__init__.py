"""Results for people and programs: tables, text, folders."""
