-- Service addresses of an appliance: those that a sibling takes over. A JSON list.
ALTER TABLE appliances ADD COLUMN addresses TEXT NOT NULL DEFAULT '[]';
