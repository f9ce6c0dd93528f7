"""What a posterior says of rows of data, old or new: functions without noise, predictions, log densities."""
