-- When sites fill that say nothing else: up to four windows of a day by local time, each as
-- 2048 x (its first minute of the day) + (that after its last); 0 for none.
INSERT INTO meta (key, value) VALUES
    ('fill_window_1', 0),
    ('fill_window_2', 0),
    ('fill_window_3', 0),
    ('fill_window_4', 0);
